package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

const adminAPI = "/api/admin/sandbox"

// reloaded is what became of a change.
type reloaded struct {
	Result, Trigger, Operation, Revision string
	Generation                           int
	Change                               struct {
		Providers []struct {
			Provider, Action string
			Draining         int
		}
		Settings []string
	}
	Diagnostics []diagnostic
}

type diagnostic struct {
	File, Summary, Detail, Within, Setting string
	Line                                   int
}

// configured is the configuration as an administrator sees it.
type configured struct {
	Data map[string]json.RawMessage
	Meta struct {
		Generation        int
		Revision          string
		Fallback          []string
		Writable, Differs bool
		ReadOnly          string `json:"read_only"`
		Origins           map[string]map[string]struct{ Origin, Name string }
		LastRefused       *reloaded `json:"last_refused"`
	}
	etag string
}

// setting is one of a provider, as text.
func (c configured) setting(t *testing.T, provider, name string) string {
	t.Helper()
	var settings map[string]json.RawMessage
	assert.NilError(t, json.Unmarshal(c.Data[provider], &settings))
	return string(settings[name])
}

func configOf(t *testing.T, b *harness.Broker) configured {
	t.Helper()
	answer := b.Do(http.MethodGet, adminAPI+"/config", adminToken, nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	c := configured{etag: answer.Header.Get("ETag")}
	answer.Into(t, &c)
	assert.Equal(t, c.etag, `"`+c.Meta.Revision+`"`)
	return c
}

// change sends a change as an administrator, with an ETag unless it is "".
func change(t *testing.T, b *harness.Broker, method, path, etag string, body map[string]any) harness.Answer {
	t.Helper()
	text, err := json.Marshal(body)
	assert.NilError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, b.URL+adminAPI+path, bytes.NewReader(text))
	assert.NilError(t, err)
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/json")
	if etag != "" {
		req.Header.Set("If-Match", etag)
	}
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return harness.Answer{Status: resp.StatusCode, Header: resp.Header, Body: answer}
}

// changed expects a change to be in force.
func changed(t *testing.T, answer harness.Answer) reloaded {
	t.Helper()
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var c struct{ Data reloaded }
	answer.Into(t, &c)
	assert.Equal(t, answer.Header.Get("ETag"), `"`+c.Data.Revision+`"`)
	return c.Data
}

func fileOf(t *testing.T, b *harness.Broker) string {
	t.Helper()
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	return string(text)
}

// startChangeable starts a broker with an administrator, a key and these providers.
func startChangeable(t *testing.T, providers string) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config:  "key_file = \"sealing.keys\"\n" + harness.Tenants + adminBlock() + providers,
		Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(dir string) {
			icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "keygen", filepath.Join(dir, "sealing.keys")).Assert(t, icmd.Success)
		},
	})
}

const commented = `
# What Ada said: never above 4.
provider "mock" {
  persist = false # for now

  # The key of the account.
  secret = "written-by-hand"
}
`

func TestAnAdministratorChangesASettingUnderTraffic(t *testing.T) {
	t.Parallel()
	const secret = "a-new-secret-1234"
	b := startChangeable(t, commented)
	before := configOf(t, b)
	assert.Equal(t, string(before.Data["active"]), `"mock"`)
	assert.Equal(t, before.setting(t, "mock", "secret"), `"****hand"`)
	assert.Equal(t, before.setting(t, "mock", "persist"), "false")
	assert.Equal(t, before.setting(t, "mock", "bad_starts"), "0")
	assert.Check(t, before.Meta.Writable && !before.Meta.Differs && before.Meta.LastRefused == nil)
	assert.Equal(t, before.Meta.Origins["mock"]["secret"].Origin, "literal")
	assert.Equal(t, before.Meta.Origins["mock"]["bad_starts"].Origin, "default")

	stop := make(chan struct{})
	var traffic sync.WaitGroup
	var done, failed atomic.Int64
	for range 8 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": `{"stdout": "works"}`})
				if done.Add(1); answer.Status != http.StatusOK {
					failed.Add(1)
					t.Errorf("a request failed: %d %s %v", answer.Status, answer.Body, answer.Err)
					return
				}
			}
		})
	}
	pid := b.Plugin("mock")
	reload := changed(t, change(t, b, http.MethodPost, "/config", before.etag, map[string]any{
		"provider_type": "mock", "config": map[string]any{"secret": secret, "persist": true, "bad_starts": 0}, "test_connection": true,
	}))
	assert.Equal(t, reload.Result, "applied")
	assert.Equal(t, reload.Operation, `provider "mock"`)
	assert.Equal(t, reload.Generation, 2)
	assert.Equal(t, len(reload.Change.Providers), 1)
	assert.Equal(t, reload.Change.Providers[0].Action, "restart")
	seen, _ := seenByAdmin(t, b, "mock")
	assert.Check(t, seen.PID != pid, "the answer came before the new process had taken over")
	enough := done.Load() + 50
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if done.Load() < enough && failed.Load() == 0 {
			return poll.Continue("%d requests", done.Load())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	close(stop)
	traffic.Wait()

	text := fileOf(t, b)
	sealed := strings.Contains(text, `secret = sealed("sb1:`)
	assert.Check(t, sealed && !strings.Contains(text, secret) && !strings.Contains(text, "written-by-hand"), "%s", text)
	for _, kept := range []string{"# What Ada said: never above 4.\n", "persist = true # for now\n\n", "# The key of the account.\n"} {
		assert.Check(t, is.Contains(text, kept))
	}
	assert.Check(t, !strings.Contains(text, "bad_starts"), "what is so already is not written")

	after := configOf(t, b)
	assert.Equal(t, after.Meta.Generation, 2)
	assert.Equal(t, after.Meta.Revision, reload.Revision)
	assert.Equal(t, after.setting(t, "mock", "secret"), `"****1234"`)
	assert.Equal(t, after.Meta.Origins["mock"]["secret"].Origin, "sealed")

	// What comes back as it was shown changes nothing, and starts nothing.
	var shown map[string]any
	assert.NilError(t, json.Unmarshal(after.Data["mock"], &shown))
	again := changed(t, change(t, b, http.MethodPost, "/config", after.etag, map[string]any{"provider_type": "mock", "config": shown}))
	assert.Equal(t, again.Result, "unchanged")
	assert.Equal(t, fileOf(t, b), text)
	now, _ := seenByAdmin(t, b, "mock")
	assert.Equal(t, now.PID, seen.PID)
	assert.Check(t, !strings.Contains(b.Log(), secret))
}

func TestAChangeMadeByHandMeanwhileIsAConflict(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	before := configOf(t, b)
	rewrite(t, b, func(text string) string { return text + "# A note of Ben's.\n" })
	request := map[string]any{"provider_type": "mock", "config": map[string]any{"persist": true}}
	refusal := change(t, b, http.MethodPost, "/config", before.etag, request)
	harness.Refused(t, refusal, http.StatusConflict, "SB014")
	refusal = change(t, b, http.MethodPut, "/active", before.etag, map[string]any{"provider": "mock"})
	harness.Refused(t, refusal, http.StatusConflict, "SB014")

	// A comment is no new generation, but another revision.
	var now configured
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now = configOf(t, b); now.Meta.Differs || now.etag == before.etag {
			return poll.Continue("the note is not seen yet")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, now.Meta.Generation, 1)
	changed(t, change(t, b, http.MethodPost, "/config", now.etag, request))
	text := fileOf(t, b)
	assert.Check(t, is.Contains(text, "persist = true # for now"))
	assert.Check(t, is.Contains(text, "# A note of Ben's.\n"))
	// Without an ETag the change is made to whatever there is.
	rewrite(t, b, func(text string) string { return text + "# One more.\n" })
	request["config"] = map[string]any{"persist": nil}
	changed(t, change(t, b, http.MethodPost, "/config", "", request))
	text = fileOf(t, b)
	assert.Check(t, is.Contains(text, "# One more.\n"))
	assert.Check(t, !strings.Contains(text, "persist"))
}

func TestAChangeThatDoesNotWorkIsTakenBack(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	pid, text := b.Plugin("mock"), fileOf(t, b)
	for name, c := range map[string]struct {
		config map[string]any
		field  string
		says   string
	}{
		"settings that the plugin refuses": {
			map[string]any{"on_configure": `{"fail":"SB002","field":"secret","message":"is a bad key"}`}, "config.secret", "is a bad key",
		},
		"a plugin that dies of them":   {map[string]any{"bad_starts": 100}, "", "plugin"},
		"a setting that there is not":  {map[string]any{"pool_sise": 4}, "config.pool_sise", "is not a setting"},
		"a number in place of a text":  {map[string]any{"unhealthy": 4}, "config.unhealthy", "must be a string"},
		"out of range":                 {map[string]any{"bad_starts": -1}, "config.bad_starts", "at least 0"},
		"another program":              {map[string]any{"plugin": "self_managed"}, "config.plugin", "changed in the file"},
		"how another secret was shown": {map[string]any{"secret": "****1234"}, "config.secret", "shown"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := change(t, b, http.MethodPost, "/config", configOf(t, b).etag, map[string]any{"provider_type": "mock", "config": c.config})
			p := harness.Refused(t, answer, http.StatusBadRequest, "SB002")
			assert.Check(t, is.Contains(string(answer.Body), c.says))
			assert.Check(t, is.Equal(p.Field, c.field))
			if c.field == "" || c.says == "is a bad key" {
				var with struct{ Diagnostics []diagnostic }
				answer.Into(t, &with)
				assert.Check(t, len(with.Diagnostics) == 1 && with.Diagnostics[0].Within == `provider "mock"`, "%s", answer.Body)
			}
			assert.Equal(t, fileOf(t, b), text)
			assert.Equal(t, b.Plugin("mock"), pid)
			assert.Equal(t, b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "works"}`}).Stdout, "works")
		})
	}
	now := configOf(t, b)
	assert.Equal(t, now.Meta.Generation, 1)
	assert.Assert(t, now.Meta.LastRefused != nil && len(now.Meta.LastRefused.Diagnostics) > 0)
	assert.Equal(t, now.Meta.LastRefused.Trigger, "api")

	answer := b.Do(http.MethodGet, adminAPI+"/generations", adminToken, nil)
	var list struct{ Data []reloaded }
	answer.Into(t, &list)
	var results []string
	for _, r := range list.Data {
		results = append(results, r.Trigger+" "+r.Result)
	}
	assert.DeepEqual(t, results, []string{"api refused", "api refused", "start applied"})
	assert.Check(t, !strings.Contains(string(answer.Body), "written-by-hand"))
	// No process and no state of those that were tried is left.
	dirs, err := filepath.Glob(filepath.Join(b.Dir, "state", "providers", "mock", "[0-9]*"))
	assert.NilError(t, err)
	assert.Equal(t, len(dirs), 1)
}

func TestFilesThatCannotBeWrittenStay(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	assert.NilError(t, os.Chmod(b.ConfigFile(), 0o444))
	now := configOf(t, b)
	assert.Check(t, !now.Meta.Writable)
	assert.Check(t, is.Contains(now.Meta.ReadOnly, "write-protected"))
	answer := change(t, b, http.MethodPost, "/config", now.etag, map[string]any{"provider_type": "mock", "config": map[string]any{"persist": true}})
	p := harness.Refused(t, answer, http.StatusForbidden, "SB012")
	assert.Check(t, is.Contains(p.Detail, "write-protected"))
	assert.Equal(t, configOf(t, b).Meta.Generation, 1)
}

func TestTheActiveProviderIsChosenByTheAPI(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, `
provider "one" { plugin = "mock" }
provider "two" { plugin = "mock" } # the spare
providers {
  active   = "one" # since March
  fallback = ["two"]
}
`)
	execute := map[string]any{"language": "mock", "code": `{"stdout": "works"}`}
	assert.Equal(t, b.Execute(t, execute).Provider, "one")
	kept := b.Execute(t, map[string]any{"language": "mock", "code": `{}`, "session_id": "s", "keep": true})
	assert.Equal(t, kept.Provider, "one")
	reload := changed(t, change(t, b, http.MethodPut, "/active", configOf(t, b).etag, map[string]any{"provider": "two"}))
	assert.DeepEqual(t, reload.Change.Settings, []string{"providers"})
	assert.Equal(t, len(reload.Change.Providers), 0)
	assert.Equal(t, b.Execute(t, execute).Provider, "two")
	assert.Equal(t, len(configOf(t, b).Meta.Fallback), 0)
	text := fileOf(t, b)
	assert.Check(t, is.Contains(text, `active   = "two" # since March`))
	assert.Check(t, is.Contains(text, "# the spare"))
	assert.Equal(t, configOf(t, b).setting(t, "one", "persist"), "false")
	_, shown := seenByAdmin(t, b, "two")
	assert.Check(t, is.Contains(shown, `"active":true`))
	// The instance that there is stays where it is.
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+kept.InstanceID+"/execute", harness.Token, execute)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)

	assert.Check(t, is.Contains(text, `fallback = ["two"]`))
	assert.Check(t, len(reload.Diagnostics) == 1 && strings.Contains(reload.Diagnostics[0].Detail, "nobody takes over"), "%v", reload.Diagnostics)

	changed(t, change(t, b, http.MethodPut, "/active", "", map[string]any{"provider": "one"}))
	assert.DeepEqual(t, configOf(t, b).Meta.Fallback, []string{"two"})
	assert.Equal(t, b.Execute(t, execute).Provider, "one")
	p := harness.Refused(t, change(t, b, http.MethodPut, "/active", "", map[string]any{"provider": "three"}), http.StatusBadRequest, "SB002")
	assert.Equal(t, p.Field, "provider")

	// A provider that is added, and takes over as the seed's page expects it.
	changed(t, change(t, b, http.MethodPost, "/config", "", map[string]any{"provider_type": "mock", "config": map[string]any{"secret": "secret-of-1234"}}))
	assert.Equal(t, b.Execute(t, execute).Provider, "mock")
	assert.Equal(t, configOf(t, b).setting(t, "mock", "secret"), `"****1234"`)
}

func TestAProviderIsTriedBesideTheOneThatRuns(t *testing.T) {
	t.Parallel()
	const badKey = "the-bad-key-5678"
	b := startChangeable(t, commented)
	pid, text := b.Plugin("mock"), fileOf(t, b)
	type trial struct {
		Success              bool
		Message, Code, Field string
		LatencyMS            float64 `json:"latency_ms"`
		Details              map[string]string
	}
	try := func(config map[string]any) (result trial) {
		t.Helper()
		answer := b.Do(http.MethodPost, adminAPI+"/test", adminToken, map[string]any{"provider": "mock", "config": config})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		assert.Check(t, !strings.Contains(string(answer.Body), badKey))
		answer.Into(t, &result)
		return result
	}
	good := try(nil)
	assert.Check(t, good.Success, "%s", good.Message)
	assert.Check(t, good.LatencyMS > 0 && good.Details["pid"] != "")
	refused := try(map[string]any{"secret": badKey, "on_configure": `{"fail":"SB002","field":"secret","message":"the service refuses the key ` + badKey + `"}`})
	assert.Check(t, !refused.Success)
	assert.Equal(t, refused.Code, "SB002")
	assert.Equal(t, refused.Field, "config.secret")
	assert.Check(t, is.Contains(refused.Message, "the service refuses the key"))
	assert.Check(t, is.Contains(try(map[string]any{"unhealthy": "no quota is left"}).Message, "no quota is left"))
	assert.Check(t, is.Contains(try(map[string]any{"on_configure": `{"crash":"before"}`}).Message, "during the call"))
	assert.Equal(t, try(map[string]any{"persist": "yes"}).Field, "config.persist")

	assert.Equal(t, fileOf(t, b), text)
	assert.Equal(t, configOf(t, b).Meta.Generation, 1)
	assert.Equal(t, b.Plugin("mock"), pid)
	dirs, err := filepath.Glob(filepath.Join(b.Dir, "state", "providers", "mock", "[0-9]*"))
	assert.NilError(t, err)
	assert.Equal(t, len(dirs), 1, "a trial left its state")
	assert.Check(t, !strings.Contains(b.Log(), badKey))
}

// The plugin repeats whatever it was given, in every way that it has.
func TestNoSecretComesOutOfTheAdminAPI(t *testing.T) {
	t.Parallel()
	const literal, fromFile, posted = "canary-literal-aaaa", "canary-of-a-file-bbbb", "canary-posted-cccc"
	b := harness.Start(t, harness.Options{
		Config:  harness.Tenants + adminBlock() + "provider \"mock\" {\n  secret = \"" + literal + "\"\n  on_list = file(\"action\")\n}\n",
		Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(dir string) {
			assert.NilError(t, os.WriteFile(filepath.Join(dir, "action"), []byte(`{"stdout": "`+fromFile+`"}`), 0o600))
		},
	})
	echo := func(secret string) string {
		return `{"fail":"SB002","field":"secret","message":"no: ` + secret + `"}`
	}
	var said strings.Builder
	for _, config := range []map[string]any{
		{"secret": posted, "on_configure": echo(posted)},
		{"secret": posted, "on_configure": `{"log":"` + posted + `","crash":"before"}`},
		{"secret": "****aaaa", "on_configure": echo(literal)},
		{"secret": posted, "unhealthy": "not with " + posted},
		{"secret": []string{posted}},
		{"secret": map[string]any{posted: posted}},
		{"persist": posted, "bad_starts": posted, "on_health": "{" + posted},
		{"on_list": posted},
	} {
		for _, path := range []string{"/test", "/config"} {
			body := map[string]any{"provider_type": "mock", "config": config}
			if path == "/config" {
				body["test_connection"] = true // else one that is not well is waited for, for a minute
			}
			answer := change(t, b, http.MethodPost, path, "", body)
			assert.Check(t, answer.Status == http.StatusOK || answer.Status >= 400 && answer.Status < 500 || answer.Status == http.StatusServiceUnavailable, "%d %s", answer.Status, answer.Body)
			said.Write(answer.Body)
		}
	}
	for _, secret := range []string{posted, "****aaaa"} {
		answer := change(t, b, http.MethodPost, "/config", "", map[string]any{"provider_type": "mock", "config": map[string]any{"secret": secret}, "dry_run": true})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		said.Write(answer.Body)
	}
	for _, path := range []string{"/config", "/generations", "/status", "/providers", "/audit?limit=500", "/history", "/usage"} {
		said.Write(b.Do(http.MethodGet, adminAPI+path, adminToken, nil).Body)
	}
	for _, secret := range []string{literal, fromFile, posted} {
		assert.Check(t, !strings.Contains(said.String(), secret), "%s", said.String())
		assert.Check(t, !strings.Contains(b.Log(), secret))
	}
	assert.Equal(t, configOf(t, b).Meta.Generation, 1)
}

// The provider that is tried has the same name and the same cgroups above its own.
func TestSandboxesInUseDoNotNoticeATrial(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := harness.Start(t, harness.Options{Config: harness.Tenants + adminBlock() +
		"limits {\n  default_timeout = \"2m\"\n  create_timeout = \"5m\"\n}\nprovider \"self_managed\" {\n  pool_size = 1\n  queue_timeout = \"4m\"\n}\n"})
	session := map[string]any{"language": "bash", "code": "echo kept > here", "session_id": "s", "keep": true}
	b.Execute(t, session)
	answer := b.Do(http.MethodPost, adminAPI+"/test", adminToken, map[string]any{"provider_type": "self_managed", "config": map[string]any{"memory_mb": 128}})
	var trial struct {
		Success bool
		Message string
	}
	answer.Into(t, &trial)
	assert.Check(t, trial.Success, "%s", answer.Body)
	session["code"] = "cat here"
	assert.Equal(t, b.Execute(t, session).Stdout, "kept\n")
	assert.Equal(t, b.Execute(t, map[string]any{"language": "bash", "code": "echo works"}).Stdout, "works\n")
}

func TestAReloadIsRehearsedAndAskedFor(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	ask := func(body any) harness.Answer {
		t.Helper()
		return b.Do(http.MethodPost, adminAPI+"/reload", adminToken, body)
	}
	result := func(answer harness.Answer) reloaded {
		t.Helper()
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		var r struct{ Data reloaded }
		answer.Into(t, &r)
		return r.Data
	}
	assert.Equal(t, result(ask(nil)).Result, "unchanged")
	// The plugin refuses this, which only shows when it is configured.
	rewrite(t, b, with("persist = false", `on_configure = "{\"fail\":\"SB002\",\"message\":\"no\"}"`))
	awaitLog(t, b, refused, 1)
	dry := result(ask(map[string]any{"dry_run": true}))
	assert.Equal(t, dry.Result, "would_apply")
	assert.Equal(t, dry.Generation, 1)
	assert.Equal(t, len(dry.Change.Providers), 1)
	assert.Equal(t, dry.Change.Providers[0].Action, "restart")
	harness.Refused(t, ask(nil), http.StatusBadRequest, "SB002")
	now := configOf(t, b)
	assert.Check(t, now.Meta.Differs && now.Meta.Generation == 1)

	rewrite(t, b, func(text string) string { return strings.Replace(text, "on_configure", "no_such", 1) + "limits {\n" })
	dry = result(ask(map[string]any{"dry_run": true}))
	assert.Equal(t, dry.Result, "refused")
	assert.Check(t, len(dry.Diagnostics) > 0)

	answer := b.Do(http.MethodGet, adminAPI+"/status", adminToken, nil)
	var status struct {
		Data struct {
			Version    string
			Generation int
			Uptime     float64 `json:"uptime_seconds"`
			Active     string
			Providers  []struct {
				ID, State string
				Healthy   bool
			}
			Instances  map[string]int
			LastReload reloaded `json:"last_reload"`
		}
	}
	answer.Into(t, &status)
	assert.Check(t, status.Data.Version != "" && status.Data.Generation == 1 && status.Data.Uptime > 0)
	assert.Equal(t, status.Data.Active, "mock")
	assert.Check(t, len(status.Data.Providers) == 1 && status.Data.Providers[0].Healthy)
	assert.Equal(t, status.Data.Instances["live"], 0)
	assert.Equal(t, status.Data.LastReload.Result, "refused")
}

func TestAReplacedPluginIsAGeneration(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	path := filepath.Join(b.Dir, "bin", "plugins", "mock")
	program, err := os.ReadFile(path)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(path+".new", program, 0o755))
	assert.NilError(t, os.Rename(path+".new", path))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var list struct{ Data []reloaded }
		b.Do(http.MethodGet, adminAPI+"/generations", adminToken, nil).Into(t, &list)
		if len(list.Data) < 2 {
			return poll.Continue("no new generation yet")
		}
		assert.Check(t, list.Data[0].Trigger == "plugin" && list.Data[0].Result == "applied" && list.Data[0].Generation == 2, "%v", list.Data[0])
		assert.Check(t, is.Len(list.Data[0].Change.Providers, 1))
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	// The files are those that they were.
	changed(t, change(t, b, http.MethodPost, "/config", configOf(t, b).etag, map[string]any{"provider_type": "mock", "config": map[string]any{"persist": true}}))
	assert.Equal(t, configOf(t, b).Meta.Generation, 3)
}

// Who may abuse it: whoever has an administrator's token and wants to be root.
func TestAnAdministratorsTokenRunsNoProgramOfItsChoice(t *testing.T) {
	t.Parallel()
	bin := binaries.Dir(t)
	b := harness.Start(t, harness.Options{
		Config:  harness.Tenants + adminBlock() + "provider \"mock\" {}\n",
		Plugins: map[string]string{"mock": mockPlugin, "self_managed": filepath.Join(bin, "plugins", "self_managed"), "e2b": filepath.Join(bin, "plugins", "e2b")},
	})
	ran := filepath.Join(b.Dir, "ran")
	script := filepath.Join(b.Dir, "script")
	assert.NilError(t, os.WriteFile(script, []byte("#!/bin/sh\nid > "+ran+"\necho runsc version 1\n"), 0o755))
	text := fileOf(t, b)
	for _, c := range []struct{ provider, setting, value string }{
		{"self_managed", "runsc", script},
		{"self_managed", "guest", script},
		{"self_managed", "rootfs", "/"},
		{"self_managed", "docker_host", "unix:///var/run/docker.sock"},
		{"self_managed", "docker_runtime", "runc"},
		{"self_managed", "image", "somebody/elses"},
		{"self_managed", "wheel_dir", "/etc"},
		{"self_managed", "package_index", "http://169.254.169.254/latest"},
		{"self_managed", "npm_registry", "http://127.0.0.1:9386/"},
		{"e2b", "domain", "evil.example"},
		{"e2b", "api_url", "https://evil.example"},
		{"e2b", "sandbox_url", "https://evil.example"},
	} {
		t.Run(c.provider+" "+c.setting, func(t *testing.T) {
			config := map[string]any{c.setting: c.value}
			if c.provider == "e2b" {
				config["api_key"] = "e2b_0123456789"
			}
			body := map[string]any{"provider_type": c.provider, "config": config}
			answer := change(t, b, http.MethodPost, "/test", "", body)
			assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
			var tried struct {
				Success        bool
				Field, Message string
			}
			answer.Into(t, &tried)
			assert.Check(t, !tried.Success)
			field := "config." + c.setting
			if c.provider == "e2b" { // there is no key to seal the secret with, in /config alone
				delete(config, "api_key")
			}
			assert.Check(t, is.Equal(tried.Field, field))
			assert.Check(t, is.Contains(tried.Message, "changed in the file"))
			p := harness.Refused(t, change(t, b, http.MethodPost, "/config", "", body), http.StatusBadRequest, "SB002")
			assert.Check(t, is.Equal(p.Field, field))
			assert.Equal(t, fileOf(t, b), text)
		})
	}
	_, err := os.Stat(ran)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
