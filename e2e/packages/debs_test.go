package packages_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/packages/machine"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestMain(m *testing.M) {
	e2bfake.Main()
	os.Exit(m.Run())
}

const (
	url    = "http://127.0.0.1:9385"
	etc    = "/etc/sandbox-broker"
	broker = "sandbox-broker"
	gvisor = "sandbox-broker-plugin-self-managed"
	e2b    = "sandbox-broker-plugin-e2b"

	first, second = "1.0.0", "1.1.0"
)

// repository is its directory.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// build makes the packages of both versions in a directory of the machine's. The second has
// another broker, plugin and guest: those that make has built, with something behind them.
func build(t *testing.T, m *machine.Machine) {
	t.Helper()
	built := binaries.Dir(t)
	if _, err := os.Stat(filepath.Join(built, "gvisor-bin", "gvisor-sentry-prewarmer")); err != nil {
		binaries.Missing(t, "there is no gVisor to pack: make own-runsc builds it")
	}
	tool := filepath.Join(t.TempDir(), "release")
	compile := exec.Command("go", "build", "-buildvcs=false", "-o", tool, ".")
	compile.Dir = filepath.Join(repository(), "cmd", "release")
	out, err := compile.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	next := t.TempDir()
	for _, name := range []string{
		"sandbox-broker", "sandbox-guest", "runsc", "gvisor-bin/gvisor-sentry-prewarmer",
		"plugins/self_managed", "plugins/e2b", "plugins/aliyun", "plugins/daytona", "plugins/kubernetes",
	} {
		content, err := os.ReadFile(filepath.Join(built, name))
		assert.NilError(t, err)
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(next, name)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(next, name), append(content, "another version"...), 0o755))
	}
	for version, bin := range map[string]string{first: built, second: next} {
		pack := exec.Command(tool, "-root", repository(), "-bin", bin, "-out", filepath.Join(m.Root, "debs"), "-epoch", "1790000000", "-version", "v"+version, "packages")
		out, err := pack.CombinedOutput()
		assert.NilError(t, err, "%s", out)
	}
}

// install installs packages of a version, as an administrator does.
func install(m *machine.Machine, version string, names ...string) (said string) {
	argv := []string{"dpkg", "--install"}
	for _, name := range names {
		argv = append(argv, fmt.Sprintf("/debs/%s_%s_%s.deb", name, version, runtime.GOARCH))
	}
	return m.Run(argv...)
}

// show is a property of the service.
func show(m *machine.Machine, property string) string {
	return strings.TrimSpace(m.Run("systemctl", "show", "--value", "--property="+property, "sandbox-broker.service"))
}

// shell is for agents, over one connection for each request.
func shell(m *machine.Machine) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: m.DialContext, DisableKeepAlives: true}, Timeout: 2 * time.Minute}
}

// agent is a client with the token of the tenant that the installation has made.
func agent(t *testing.T, m *machine.Machine) *client.Client {
	t.Helper()
	return withToken(t, m, "SANDBOX_BROKER_TOKEN")
}

// withToken is a client with one of the tokens that the installation has made.
func withToken(t *testing.T, m *machine.Machine, name string) *client.Client {
	t.Helper()
	tokens, err := os.ReadFile(filepath.Join(m.Root, etc, "first-tokens"))
	assert.NilError(t, err)
	token := regexp.MustCompile(`(?m)^` + name + `=(sbk_\S+)$`).FindStringSubmatch(string(tokens))
	assert.Assert(t, token != nil)
	return client.New(url, token[1]).Over(shell(m))
}

// run runs code and returns what it prints.
func run(t *testing.T, a *client.Client, request client.ExecuteRequest) string {
	t.Helper()
	request.Timeout = 60
	got, err := a.Execute(t.Context(), request)
	assert.NilError(t, err)
	assert.Equal(t, got.Status, "succeeded", "%+v", got)
	return got.Stdout
}

// await waits until the journal of the broker has a text.
func await(t *testing.T, m *machine.Machine, text string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if log := m.Run("journalctl", "--no-pager", "--unit=sandbox-broker.service"); !strings.Contains(log, text) {
			return poll.Continue("%q is not there yet:\n%s", text, log)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(200*time.Millisecond))
}

// files lists what is installed in the machine.
func files(m *machine.Machine) []string {
	list := strings.Fields(m.Run("find", "/", "-xdev", "(", "-path", "/proc", "-o", "-path", "/sys", "-o", "-path", "/dev", "-o", "-path", "/run",
		"-o", "-path", "/tmp", "-o", "-path", "/debs", "-o", "-path", "/var/log/journal", "-o", "-path", "/var/lib/dpkg", "-o", "-path", "/var/log/dpkg.log", "-o", "-path", "/var/tmp",
		"-o", "-name", "__pycache__", ")", "-prune", "-o", "-print"))
	// Copies that the tools for users make, and locks.
	return slices.DeleteFunc(list, func(path string) bool {
		return filepath.Dir(path) == "/etc" && (strings.HasSuffix(path, "-") || strings.HasSuffix(path, ".lock"))
	})
}

// The life of the packages in one machine: each step finds what the one before has left.
func TestPackagesFromInstallationToPurge(t *testing.T) {
	binaries.Needs(t, "bwrap", "bubblewrap")
	m := machine.Boot(t)
	build(t, m)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := m.Try("journalctl", "--no-pager", "--unit=sandbox-broker.service", "--lines=100")
			t.Log(log)
		}
	})
	var cloud *e2bfake.Server
	assert.NilError(t, m.Inside(func() (err error) {
		cloud, err = e2bfake.Start(e2bfake.Options{})
		return err
	}))
	t.Cleanup(func() { assert.Check(t, cloud.Close()) })
	before := files(m)
	for _, step := range []struct {
		name string
		do   func(t *testing.T, m *machine.Machine)
	}{
		{"a broker alone does not start, and says why", func(t *testing.T, m *machine.Machine) {
			said := install(m, first, broker)
			assert.Check(t, is.Contains(said, "it starts once it has a provider"))
			assert.Check(t, is.Contains(said, "are in /etc/sandbox-broker/first-tokens"))
			assert.Check(t, !strings.Contains(said, "sbk_"), said)
			assert.Equal(t, show(m, "ActiveState"), "inactive")
			assert.Equal(t, m.Run("stat", "--format=%n %a %U:%G", etc, etc+"/conf.d", etc+"/sandbox.hcl", etc+"/conf.d/tokens.hcl", etc+"/first-tokens"),
				"/etc/sandbox-broker 750 root:sandbox-broker\n/etc/sandbox-broker/conf.d 750 root:sandbox-broker\n"+
					"/etc/sandbox-broker/sandbox.hcl 640 root:sandbox-broker\n/etc/sandbox-broker/conf.d/tokens.hcl 640 root:sandbox-broker\n"+
					"/etc/sandbox-broker/first-tokens 600 root:root\n")
			assert.Equal(t, m.Run("systemd-analyze", "verify", "sandbox-broker.service", "sandbox-broker.socket"), "")
			exposed(t, m, 2.0)
		}},
		{"a broker for a cloud runs without any right", func(t *testing.T, m *machine.Machine) {
			install(m, first, e2b)
			trusted, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
			assert.NilError(t, err)
			m.Write("/etc/ssl/cloud.pem", string(trusted), 0o644)
			m.Write("/etc/systemd/system/sandbox-broker.service.d/cloud.conf", "[Service]\nEnvironment=SSL_CERT_FILE=/etc/ssl/cloud.pem\n", 0o644)
			m.Write(etc+"/conf.d/e2b.hcl", fmt.Sprintf("provider \"e2b\" {\n  api_key = %q\n  api_url = %q\n  sandbox_url = %q\n}\n"+
				"providers {\n  active = \"e2b\"\n  on_stop = \"keep\"\n}\n", e2bfake.DefaultAPIKey, cloud.APIURL, cloud.SandboxURL), 0o640)
			m.Run("chgrp", "sandbox-broker", etc+"/conf.d/e2b.hcl")
			m.Run("systemctl", "daemon-reload")
			m.Run("systemctl", "start", "sandbox-broker.socket", "sandbox-broker.service")
			assert.Equal(t, m.Run("stat", "--format=%U", "/proc/"+show(m, "MainPID")), "sandbox-broker\n")
			assert.Check(t, is.Contains(m.Run("grep", "CapBnd", "/proc/"+show(m, "MainPID")+"/status"), "0000000000000000"))
			assert.Equal(t, run(t, agent(t, m), client.ExecuteRequest{Language: "bash", Code: "echo kept >file; cat file", SessionID: "cloud"}), "kept\n")
		}},
		{"an administrator changes the configuration once its files are the broker's", func(t *testing.T, m *machine.Machine) {
			admin := withToken(t, m, "ADMIN_TOKEN").Admin()
			_, err := admin.AddTenant(t.Context(), client.AdminTenantRequest{Name: "acme"})
			assert.ErrorContains(t, err, "SB012")
			m.Run("chown", "--recursive", "sandbox-broker", etc+"/conf.d")
			m.Run("chown", "sandbox-broker", etc, etc+"/sandbox.hcl")
			added, err := admin.AddTenant(t.Context(), client.AdminTenantRequest{Name: "acme"})
			assert.NilError(t, err)
			acme := client.New(url, added.Token).Over(shell(m))
			assert.Equal(t, run(t, acme, client.ExecuteRequest{Language: "bash", Code: "echo acme"}), "acme\n")
		}},
		{"gVisor's package gives the broker what that needs", func(t *testing.T, m *machine.Machine) {
			install(m, first, gvisor)
			assert.Equal(t, show(m, "ActiveState"), "active")
			assert.Equal(t, m.Run("systemd-analyze", "verify", "sandbox-broker.service"), "")
			exposed(t, m, 4.5)
			a := agent(t, m)
			assert.Equal(t, run(t, a, client.ExecuteRequest{Provider: "self_managed", Language: "python", Code: "import os; print(os.uname().release, 6 * 7)"}), "4.19.0-gvisor 42\n")
			run(t, a, client.ExecuteRequest{Provider: "self_managed", Language: "bash", Code: "echo here >file", SessionID: "gvisor"})
			log := m.Run("journalctl", "--no-pager", "--unit=sandbox-broker.service")
			assert.Check(t, !strings.Contains(log, "sandboxes are weaker"), log)
			// The broker came back with other rights and found what it had in the cloud.
			assert.Equal(t, run(t, a, client.ExecuteRequest{Language: "bash", Code: "cat file", SessionID: "cloud"}), "kept\n")
		}},
		{"with the rights of the service the plugin does what the suite asks of it", func(t *testing.T, m *machine.Machine) {
			conformance(t, m)
		}},
		{"an upgrade of the plugin leaves live sandboxes alone", func(t *testing.T, m *machine.Machine) {
			pid := show(m, "MainPID")
			install(m, second, gvisor)
			await(t, m, "a new process of the provider has taken over: provider=self_managed")
			assert.Equal(t, show(m, "MainPID"), pid)
			assert.Equal(t, run(t, agent(t, m), client.ExecuteRequest{Provider: "self_managed", Language: "bash", Code: "cat file", SessionID: "gvisor"}), "here\n")
		}},
		{"an upgrade of the broker refuses no connection", func(t *testing.T, m *machine.Machine) {
			pid := show(m, "MainPID")
			sandboxes := cloud.Sandboxes()
			knocking := knock(t, m)
			// An administrator's own configuration stays.
			m.Run("sed", "-i", `s/max_timeout     = "10m"/max_timeout     = "11m"/`, etc+"/sandbox.hcl")
			install(m, second, broker, e2b)
			knocks, failures := knocking()
			assert.Check(t, knocks > 20, "%d", knocks)
			assert.Check(t, is.Len(failures, 0))
			assert.Assert(t, show(m, "MainPID") != pid)
			assert.Check(t, is.Contains(m.Run("dpkg-query", "--show", "--showformat=${Version} ${Status}", broker), second+" install ok installed"))
			assert.Check(t, is.Contains(m.Run("cat", etc+"/sandbox.hcl"), `"11m"`))
			a := agent(t, m)
			assert.Equal(t, run(t, a, client.ExecuteRequest{Language: "bash", Code: "cat file", SessionID: "cloud"}), "kept\n")
			assert.DeepEqual(t, cloud.Sandboxes(), sandboxes)
			assert.Equal(t, run(t, a, client.ExecuteRequest{Provider: "self_managed", Language: "python", Code: "print(1)"}), "1\n")
		}},
		{"a configuration that cannot be used stops no broker", func(t *testing.T, m *machine.Machine) {
			pid := show(m, "MainPID")
			m.Write(etc+"/conf.d/typo.hcl", "provder \"x\" {}\n", 0o644)
			assert.Check(t, is.Contains(install(m, second, broker), "typo.hcl:1"))
			assert.Equal(t, show(m, "MainPID"), pid)
			m.Run("rm", etc+"/conf.d/typo.hcl")
		}},
		{"logrotate keeps away from the chain of the audit log", func(t *testing.T, m *machine.Machine) {
			m.Write("/etc/systemd/system/sandbox-broker.service.d/log.conf", "[Service]\nStandardError=append:/var/log/sandbox-broker/broker.log\n", 0o644)
			m.Run("systemctl", "daemon-reload")
			m.Run("systemctl", "restart", "sandbox-broker.service")
			audit := m.Run("sh", "-c", "ls -i /var/log/sandbox-broker/audit")
			m.Run("logrotate", "--state=/run/logrotate.status", "--force", "/etc/logrotate.d/sandbox-broker")
			assert.Check(t, is.Contains(m.Run("cat", "/var/log/sandbox-broker/broker.log.1"), "provider ready"))
			run(t, agent(t, m), client.ExecuteRequest{Provider: "self_managed", Language: "python", Code: "print(1)"})
			log := m.Run("cat", "/var/log/sandbox-broker/broker.log")
			assert.Check(t, !strings.Contains(log, "\x00") && strings.Contains(log, "/api/v1/execute"), "%q", log)
			assert.Equal(t, m.Run("sh", "-c", "ls -i /var/log/sandbox-broker/audit"), audit)
			assert.Check(t, is.Contains(m.Run("sandbox-broker", "audit", "verify", "/var/log/sandbox-broker/audit"), "ok: "))
			m.Run("rm", "-r", "/etc/systemd/system/sandbox-broker.service.d/log.conf")
			m.Run("systemctl", "daemon-reload")
		}},
		{"without gVisor's package the broker has no right again", func(t *testing.T, m *machine.Machine) {
			m.Run("dpkg", "--remove", gvisor)
			assert.Equal(t, m.Run("stat", "--format=%U", "/proc/"+show(m, "MainPID")), "sandbox-broker\n")
			assert.Equal(t, run(t, agent(t, m), client.ExecuteRequest{Language: "bash", Code: "cat file", SessionID: "cloud"}), "kept\n")
			install(m, second, gvisor)
			assert.Equal(t, run(t, agent(t, m), client.ExecuteRequest{Provider: "self_managed", Language: "python", Code: "print(2)"}), "2\n")
		}},
		{"what is removed keeps its configuration", func(t *testing.T, m *machine.Machine) {
			m.Run("dpkg", "--remove", gvisor, e2b, broker)
			assert.Equal(t, show(m, "ActiveState"), "inactive")
			_, err := m.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
			assert.ErrorContains(t, err, "connection refused")
			for _, path := range []string{"/sandbox.hcl", "/conf.d/e2b.hcl", "/conf.d/tokens.hcl", "/providers-available/self_managed.hcl"} {
				m.Run("test", "-f", etc+path)
			}
		}},
		{"what is purged leaves nothing", func(t *testing.T, m *machine.Machine) {
			m.Run("dpkg", "--purge", broker)
			assert.Equal(t, m.Run("sh", "-c", "cd /etc/sandbox-broker && find . -type f | sort"), "./providers-available/self_managed.hcl\n", "what belongs to other packages")
			m.Run("dpkg", "--purge", gvisor, e2b)
			m.Run("rm", "-r", "/etc/systemd/system/sandbox-broker.service.d", "/etc/ssl/cloud.pem") // this test's own
			assert.DeepEqual(t, files(m), before)
			for _, database := range []string{"passwd", "group"} {
				_, err := m.Try("getent", database, "sandbox-broker")
				assert.Check(t, is.ErrorContains(err, "exit status 2"), database)
			}
			units, _ := m.Try("systemctl", "list-unit-files", "--no-legend", "sandbox-broker*") // it fails where there are none
			assert.Equal(t, units, "")
		}},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(t, m.With(t)) }) {
			return
		}
	}
}

// exposed checks what systemd says about how much the service may do: at most so much, of 10.
func exposed(t *testing.T, m *machine.Machine, most float64) {
	t.Helper()
	said := m.Run("systemd-analyze", "security", "--offline=true", "--no-pager", "sandbox-broker.service")
	level := regexp.MustCompile(`Overall exposure level for sandbox-broker.service: ([0-9.]+)`).FindStringSubmatch(said)
	assert.Assert(t, level != nil, said)
	var got float64
	_, err := fmt.Sscan(level[1], &got)
	assert.NilError(t, err)
	assert.Check(t, got <= most, "%v is more than %v:\n%s", got, most, said)
	t.Logf("exposure level %v, at most %v", got, most)
}

// conformance runs those cases of the suite for providers that have to do with the rights of a
// process, in a service that has all lines of the broker's but those about its start.
func conformance(t *testing.T, m *machine.Machine) {
	t.Helper()
	const units = "/usr/lib/systemd/system/"
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(m.Root, units, name))
		assert.NilError(t, err)
		return string(text)
	}
	unit := regexp.MustCompile(`(?m)^(Exec|Type|Restart|Also|ReadWritePaths|Environment).*\n`).ReplaceAllString(read("sandbox-broker.service"), "")
	unit = regexp.MustCompile(`(?m)^((State|Logs|Runtime)Directory)=.*$`).ReplaceAllString(unit, "$1=conformance")
	unit = strings.Replace(unit, "[Service]\n", "[Service]\nType=oneshot\nEnvironment=XDG_RUNTIME_DIR=/run/conformance TMPDIR=/var/lib/conformance\n"+
		`ExecStart=/usr/bin/sandbox-broker plugin verify --config /etc/conformance.hcl --run "^(process|isolation|ports|pause)/" /usr/lib/sandbox-broker/plugins/self_managed`+"\n", 1)
	m.Write("/etc/systemd/system/conformance.service", unit, 0o644)
	m.Write("/etc/systemd/system/conformance.service.d/self-managed.conf", read("sandbox-broker.service.d/self-managed.conf"), 0o644)
	m.Write("/etc/conformance.hcl", "provider \"self_managed\" {\n  cgroups = \"required\"\n}\n", 0o644)
	m.Run("systemctl", "daemon-reload")
	_, err := m.Try("systemctl", "start", "conformance.service")
	said := m.Run("journalctl", "--no-pager", "--output=cat", "--unit=conformance.service")
	assert.NilError(t, err, "%s", said)
	assert.Check(t, is.Regexp(`\n[1-9][0-9]+ passed, 0 failed`, said))
	m.Run("rm", "-r", "/etc/systemd/system/conformance.service", "/etc/systemd/system/conformance.service.d", "/etc/conformance.hcl", "/var/lib/conformance", "/var/log/conformance")
	m.Run("systemctl", "daemon-reload")
}

// knock connects again and again, until what it returns is called: that tells how often it
// has, and what failed.
func knock(t *testing.T, m *machine.Machine) (stop func() (int, []error)) {
	done, ended := make(chan struct{}), make(chan struct{})
	var knocks int
	var failures []error
	go func() {
		defer close(ended)
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-done:
				return
			case <-pace.C:
			}
			knocks++
			response, err := shell(m).Get(url + "/healthz")
			if err == nil {
				err = response.Body.Close()
			}
			if err != nil {
				failures = append(failures, err)
			}
		}
	}()
	stop = sync.OnceValues(func() (int, []error) {
		close(done)
		<-ended
		return knocks, failures
	})
	t.Cleanup(func() { stop() })
	return stop
}
