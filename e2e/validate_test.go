package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// refusedAtTheStart are settings that obey the schema and that no provider can be
// configured with, by the setting at fault. NONE stands for a path where nothing is,
// FILE for a file and DIR for a directory that is no root file system.
var refusedAtTheStart = []struct{ plugin, settings, setting, says string }{
	{"self_managed", `pool_size = 11 max_sandboxes = 10`, "pool_size", "must not be above max_sandboxes (10)"},
	{"self_managed", `max_age = "30s"`, "max_age", "at least 1m0s"},
	{"self_managed", `rootfs = "rootfs"`, "rootfs", "absolute path"},
	{"self_managed", `rootfs = "NONE"`, "rootfs", "there is no root file system"},
	{"self_managed", `rootfs = "DIR"`, "rootfs", "there is no root file system"},
	{"self_managed", `runtime = "docker" rootfs = "/"`, "rootfs", "name an image"},
	{"self_managed", `runsc = "NONE"`, "runsc", "there is no"},
	{"self_managed", `runsc = "FILE"`, "runsc", "is not executable"},
	{"self_managed", `guest = "NONE"`, "guest", "no executable sandbox-guest"},
	{"self_managed", `packages = "on"`, "packages", "where packages come from"},
	{"self_managed", `packages = "on" package_index = "https://u:p@example.com/"`, "package_index", "holds a user"},
	{"self_managed", `packages = "on" package_index = "https://example.com/?x"`, "package_index", "must end with the path"},
	{"self_managed", `packages = "on" npm_registry = "https://:1/"`, "npm_registry", "not the URL"},
	{"self_managed", `packages = "on" wheel_dir = "NONE"`, "wheel_dir", "no such file"},
	{"self_managed", `packages = "on" wheel_dir = "FILE"`, "wheel_dir", "no directory"},
	{"self_managed", `packages = "on" package_index = "https://example.com/" package_hosts = ["a b"]`, "package_hosts", "neither the name"},
	{"self_managed", `policy_blocked_imports = ["os"]`, "policy_blocked_imports", ""},
	{"self_managed", `policy_allowed_rules = ["x"]`, "policy_allowed_rules", ""},
	{"e2b", `api_key = "k" region = "eu"`, "region", "is in the US"},
	{"e2b", `api_key = "k" region = "us" domain = "example.com"`, "region", "leave region out"},
	{"e2b", `api_key = "k" templates = { perl = "x" }`, "templates", "no template of the broker's"},
	{"e2b", `api_key = "k" templates = { bash = "" }`, "templates", "has nothing for bash"},
	{"e2b", `api_key = "k" allowed_hosts = ["a b"]`, "allowed_hosts", "neither a name"},
	{"e2b", `api_key = "k" allowed_hosts = ["a"] allow_internet = false`, "allowed_hosts", "allow_internet is false"},
	{"kubernetes", `namespace = "n" image = "i" runtime_class = ""`, "runtime_class", "kernel of its own"},
	{"kubernetes", `namespace = "n" image = "i" pool_size = 10 max_sandboxes = 5`, "pool_size", "max_sandboxes"},
	{"daytona", `api_key = "k" snapshot = "s" image = "python:3.12"`, "image", "one of them"},
	{"daytona", `api_key = "k" image = "python:latest"`, "image", "tag"},
	{"daytona", `api_key = "k" cpus = 2`, "cpus", "belongs to image"},
	{"daytona", `api_key = "k" pause_by = "stop"`, "keep_stopped", "as long as a pause"},
	{"aliyun", `account_id = "1234567890123456"`, "access_key_id", "is required"},
	{"aliyun", `account_id = "1234567890123456" access_key_id = "LTAI12345678"`, "access_key_secret", "is required"},
	{"aliyun", `account_id = "me" access_key_id = "LTAI12345678" access_key_secret = "s"`, "account_id", "digits alone"},
	{"aliyun", `account_id = "1234567890123456" access_key_id = "STS.12345678" access_key_secret = "s"`, "security_token", "temporary key"},
	{"aliyun", `account_id = "1234567890123456" access_key_id = "LTAI12345678" access_key_secret = "s" network = "PRIVATE" vswitch_ids = ["v"]`, "vpc_id", "is required"},
	{"aliyun", `account_id = "1234567890123456" access_key_id = "LTAI12345678" access_key_secret = "s" network = "PRIVATE" vpc_id = "v"`, "vswitch_ids", "is required"},
	{"aliyun", `account_id = "1234567890123456" identity = "ecs_role" role_name = "../../user-data"`, "role_name", "name of a role"},
	{"aliyun", `account_id = "1234567890123456" identity = "ecs_role" access_key_id = "LTAI12345678"`, "identity", "remove one"},
}

func TestCheckRefusesWhatTheStartRefuses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	assert.NilError(t, os.WriteFile(file, nil, 0o644))
	var text strings.Builder
	fmt.Fprintf(&text, "plugin_dir = %q\n%sproviders { active = \"p0\" }\n", filepath.Join(binaries.Dir(t), "plugins"), harness.Tenants)
	paths := strings.NewReplacer("NONE", filepath.Join(dir, "none"), "FILE", file, "DIR", dir)
	for i, c := range refusedAtTheStart {
		settings := paths.Replace(c.settings)
		// One to a line, as HCL wants it.
		for _, name := range []string{"max_sandboxes", "runtime_class", "pool_size", "rootfs", "snapshot", "image", "cpus", "pause_by", "package_index", "npm_registry", "wheel_dir", "package_hosts", "region", "domain", "templates", "allowed_hosts", "allow_internet", "access_key_id", "access_key_secret", "network", "vswitch_ids", "vpc_id", "identity", "role_name"} {
			settings = strings.ReplaceAll(settings, " "+name+" =", "\n  "+name+" =")
		}
		fmt.Fprintf(&text, "provider \"p%d\" {\n  plugin = %q\n  %s\n}\n", i, c.plugin, settings)
	}
	config := filepath.Join(dir, "sandbox.hcl")
	assert.NilError(t, os.WriteFile(config, []byte(text.String()), 0o600))
	result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "check", "--json", config)
	result.Assert(t, icmd.Expected{ExitCode: 1})
	var report struct {
		Diagnostics []struct {
			Severity, Within, Setting, Detail string
			Line                              int
		}
	}
	assert.NilError(t, json.Unmarshal([]byte(result.Stdout()), &report))
	lines := strings.Split(text.String(), "\n")
	for i, c := range refusedAtTheStart {
		found := 0
		for _, d := range report.Diagnostics {
			if d.Within != fmt.Sprintf("provider %q", fmt.Sprintf("p%d", i)) {
				continue
			}
			found++
			assert.Check(t, is.Equal(d.Setting, c.setting), c.settings)
			assert.Check(t, is.Contains(d.Detail, c.says), c.settings)
			assert.Check(t, is.Equal(d.Severity, "error"))
			if strings.Contains(c.settings, c.setting+" =") {
				assert.Check(t, is.Contains(lines[d.Line-1], c.setting+" ="), c.settings)
			}
			assert.Check(t, !strings.Contains(d.Detail, "u:p@"))
		}
		assert.Check(t, is.Equal(found, 1), "%s: %s", c.plugin, c.settings)
	}
}

// The form shows it at the field, and a reload refuses it, before anything is made.
func TestAPluginsOwnRulesAreShownAtTheField(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	rule := map[string]any{"on_validate": `{"fail":"SB002","field":"secret","message":"must not be so short"}`}
	answer := change(t, b, http.MethodPost, "/config", "", map[string]any{"provider_type": "mock", "config": rule})
	p := harness.Refused(t, answer, http.StatusBadRequest, "SB002")
	assert.Equal(t, p.Field, "config.secret")
	assert.Check(t, is.Contains(string(answer.Body), "must not be so short"))
	answer = change(t, b, http.MethodPost, "/test", "", map[string]any{"provider_type": "mock", "config": rule})
	assert.Check(t, is.Contains(string(answer.Body), `"field":"config.secret"`))
	rewrite(t, b, func(text string) string {
		return strings.Replace(text, "persist = false", `on_validate = "{\"fail\":\"SB002\",\"field\":\"secret\",\"message\":\"must not be so short\"}"`, 1)
	})
	answer = change(t, b, http.MethodPost, "/reload", "", map[string]any{"dry_run": true})
	var dry struct{ Data reloaded }
	answer.Into(t, &dry)
	assert.Equal(t, dry.Data.Result, "refused")
	assert.Equal(t, len(dry.Data.Diagnostics), 1)
	assert.Equal(t, dry.Data.Diagnostics[0].Setting, "secret")
	assert.Check(t, !strings.Contains(b.Log(), "configured twice"))
}

func TestPluginsThatNoBlockRunsAreListedAndAdded(t *testing.T) {
	t.Parallel()
	bin := binaries.Dir(t)
	b := harness.Start(t, harness.Options{
		Config:  harness.Tenants + adminBlock() + "provider \"mock\" {}\n",
		Plugins: map[string]string{"mock": mockPlugin, "e2b": filepath.Join(bin, "plugins", "e2b")},
		Prepare: func(dir string) {
			plugins := filepath.Join(dir, "bin", "plugins")
			assert.NilError(t, os.WriteFile(filepath.Join(plugins, "no-plugin"), []byte("#!/bin/sh\nexit 3\n"), 0o755))
			assert.NilError(t, os.WriteFile(filepath.Join(plugins, "notes.txt"), []byte("not a program"), 0o644))
			assert.NilError(t, os.WriteFile(filepath.Join(plugins, "others"), []byte("#!/bin/sh\n"), 0o755))
			assert.NilError(t, os.Chmod(filepath.Join(plugins, "others"), 0o777))
		},
	})
	type listed struct {
		ID, State, Reason string
		Active            bool
		Schema            map[string]struct {
			Secret   bool
			FileOnly bool `json:"file_only"`
		} `json:"config_schema"`
	}
	list := func() (all map[string]listed) {
		t.Helper()
		answer := b.Do(http.MethodGet, adminAPI+"/providers", adminToken, nil)
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		var got struct{ Data []listed }
		answer.Into(t, &got)
		all = map[string]listed{}
		for _, p := range got.Data {
			all[p.ID] = p
		}
		return all
	}
	all := list()
	assert.Equal(t, len(all), 4, "%v", all) // self_managed is among them
	assert.Check(t, all["mock"].Active && all["mock"].State == "ready")
	assert.Check(t, is.Equal(all["e2b"].State, "not_configured"))
	assert.Check(t, all["e2b"].Schema["api_key"].Secret && all["e2b"].Schema["domain"].FileOnly)
	assert.Check(t, is.Contains(all["no_plugin"].Reason, "cannot be used"))

	text := fileOf(t, b)
	for _, name := range []string{"../mock", "/bin/sh", "sh", ".hidden", "notes.txt", "others", "no-plugin", "mock/../mock", "${env(\"HOME\")}"} {
		for _, path := range []string{"/config", "/test"} {
			answer := change(t, b, http.MethodPost, path, "", map[string]any{"provider_type": "fresh", "plugin": name, "config": map[string]any{}})
			assert.Check(t, answer.Status >= 400 || strings.Contains(string(answer.Body), `"success":false`), "%s %s: %s", path, name, answer.Body)
			assert.Equal(t, fileOf(t, b), text)
		}
	}
	p := harness.Refused(t, change(t, b, http.MethodPost, "/config", "", map[string]any{"provider_type": "mock", "plugin": "e2b", "config": map[string]any{}}), http.StatusBadRequest, "SB002")
	assert.Check(t, is.Contains(p.Detail, "changed in the file"))

	changed(t, change(t, b, http.MethodPost, "/config", "", map[string]any{"provider_type": "aliyun_codeinterpreter", "plugin": "mock", "config": map[string]any{"persist": true}}))
	assert.Check(t, is.Contains(fileOf(t, b), "provider \"aliyun_codeinterpreter\" {\n  plugin = \"mock\"\n  persist = true\n}\n"))
	assert.Equal(t, b.Execute(t, map[string]any{"language": "mock", "code": `{}`}).Provider, "aliyun_codeinterpreter")
	assert.Check(t, list()["aliyun_codeinterpreter"].Active)
	answer := b.Do(http.MethodGet, adminAPI+"/providers/e2b", adminToken, nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	harness.Refused(t, b.Do(http.MethodGet, adminAPI+"/providers/e3b", adminToken, nil), http.StatusNotFound, "SB013")
}
