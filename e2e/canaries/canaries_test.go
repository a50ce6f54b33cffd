package canaries_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const adminAPI = "/api/admin/sandbox"

// No secret comes out, whoever asks for what, whatever is wrong with the
// configuration, and whatever a plugin says.
func TestNoSecretComesOut(t *testing.T) {
	s := newScene(t)
	var dir string
	b := harness.Start(t, harness.Options{
		Config: s.config, Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(d string) { dir = d; s.write(t, d) },
	})
	out := said{}

	askAsTenant(t, s, b, out)
	askAsAdministrator(s, b, out)
	change(s, b, out)
	for name, text := range s.slips(fileOf(t, b)) {
		slip(t, s, b, name, text, out)
	}
	assert.Equal(t, len(s.all), 120)
	askAsAdministrator(s, b, out)
	out.add("the metrics", metrics(t, b))
	for _, p := range harness.Processes(t) {
		out.add("a command line", p.Command)
	}

	// The last words of a plugin, and of the broker.
	assert.NilError(t, syscall.Kill(b.Plugin("mock"), syscall.SIGQUIT))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if strings.Contains(b.Log(), "SIGQUIT: quit") {
			return poll.Success()
		}
		return poll.Continue("no dump of the plugin yet")
	}, poll.WithTimeout(2*time.Minute))
	askAsAdministrator(s, b, out)
	assert.NilError(t, syscall.Kill(b.PID, syscall.SIGQUIT))
	<-b.Ended()
	b.WaitGone()
	assert.Check(t, is.Contains(b.Log(), "goroutine "), "no dump of the broker")
	out.add("the log", b.Log())
	files(t, s, dir, out)

	assert.Check(t, strings.Count(out["the log"], "(secret)") > 1000, "the plugin said next to nothing")
	for _, where := range []string{"GET " + adminAPI + "/providers", "POST " + adminAPI + "/test", "POST /api/v1/execute"} {
		assert.Check(t, is.Contains(out[where], "(secret)"), where)
	}
	s.check(t, out)
}

func ask(b *harness.Broker, out said, method, path, token string, body any) harness.Answer {
	answer := b.Do(method, path, token, body)
	where, _, _ := strings.Cut(path, "?")
	out.add(method+" "+where, fmt.Sprint(answer.Status, answer.Header, string(answer.Body)))
	return answer
}

func askAsTenant(t *testing.T, s *scene, b *harness.Broker, out said) {
	t.Helper()
	const python = "print(1)"
	for _, p := range providers {
		for _, token := range s.tokens[:2] {
			ask(b, out, http.MethodPost, "/api/v1/execute", token, map[string]any{"provider": p.label, "language": "python", "code": python})
		}
		ask(b, out, http.MethodPost, "/api/v1/instances", s.tokens[2], map[string]any{"provider": p.label, "template": "python", "session_id": p.label})
	}
	var list struct{ Instances []struct{ ID string } }
	ask(b, out, http.MethodGet, "/api/v1/instances", s.tokens[3], nil).Into(t, &list)
	assert.Check(t, len(list.Instances) > 0)
	for _, i := range list.Instances {
		ask(b, out, http.MethodGet, "/api/v1/instances/"+i.ID, s.tokens[3], nil)
		ask(b, out, http.MethodPost, "/api/v1/instances/"+i.ID+"/execute", s.tokens[4], map[string]any{"language": "python", "code": python})
	}
	for _, path := range []string{"/api/v1/providers", "/api/v1/usage", "/openapi.json", "/healthz", "/readyz", "/nowhere"} {
		ask(b, out, http.MethodGet, path, s.tokens[0], nil)
	}
	// Tokens where they do not belong.
	for _, token := range slices.Concat(s.tokens, s.admins) {
		ask(b, out, http.MethodGet, "/api/v1/providers", token+"x", nil)
		ask(b, out, http.MethodGet, "/api/v1/nowhere?token="+token, token, nil)
		ask(b, out, http.MethodGet, adminAPI+"/config", token, nil)
	}
}

func askAsAdministrator(s *scene, b *harness.Broker, out said) {
	for _, path := range []string{"/config", "/generations", "/status", "/providers", "/tenants", "/tenants/one"} {
		ask(b, out, http.MethodGet, adminAPI+path, s.admins[0], nil)
	}
	for _, p := range providers {
		ask(b, out, http.MethodGet, adminAPI+"/providers/"+p.label, s.admins[1], nil)
	}
}

// change sends settings, good and bad, to be tried and to be kept.
func change(s *scene, b *harness.Broker, out said) {
	new := func() string { return s.wild("a secret that is sent") }
	for _, settings := range []map[string]any{
		{"secret": new()},
		{"secret": new(), "parrot": []string{"configure"}},
		{"secret": new(), "parrot": []string{"configure_panic"}},
		{"secret": new(), "parrot": []string{"configure_crash"}},
		{"secret": new(), "parrot": []string{"health"}},
		{"secret": []string{new()}},
		{"tokens": []any{new(), 5}, "headers": map[string]any{"k": new()}},
		{"persist": new(), "on_health": "{" + new()},
	} {
		for _, path := range []string{"/test", "/config"} {
			body := map[string]any{"provider_type": "quiet", "config": settings}
			if path == "/config" {
				body["set_active"] = false
				body["test_connection"] = true // else one that is not well is waited for, for a minute
			}
			ask(b, out, http.MethodPost, adminAPI+path, s.admins[1], body)
		}
	}
}

// slip brings a mistake into the file, has it told in every way, and takes it back.
func slip(t *testing.T, s *scene, b *harness.Broker, name, text string, out said) {
	t.Helper()
	original := fileOf(t, b)
	assert.Assert(t, text != original, name)
	save(t, b, text)
	cfg, diags := config.Load(b.ConfigFile())
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if strings.Contains(string(generations(s, b)), cfg.Revision) {
			return poll.Success()
		}
		return poll.Continue("%s: not tried yet", name)
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(10*time.Millisecond))
	if diags.HasErrors() { // else only the plugin finds it, as above
		for _, flags := range [][]string{nil, {"--json"}} {
			check := exec.Command(filepath.Join(binaries.Dir(t), "sandbox-broker"), append([]string{"check", b.ConfigFile()}, flags...)...)
			said, err := check.CombinedOutput()
			assert.Check(t, err != nil, "%s: %s", name, said)
			out.add("sandbox-broker check", string(said))
		}
	}
	save(t, b, original)
}

// generations are read with the token that no slip takes away: they stay in force.
func generations(s *scene, b *harness.Broker) []byte {
	return b.Do(http.MethodGet, adminAPI+"/generations", s.admins[0], nil).Body
}

func fileOf(t *testing.T, b *harness.Broker) string {
	t.Helper()
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	return string(text)
}

func save(t *testing.T, b *harness.Broker, text string) {
	t.Helper()
	assert.NilError(t, os.WriteFile(b.ConfigFile()+".new", []byte(text), 0o600))
	assert.NilError(t, os.Rename(b.ConfigFile()+".new", b.ConfigFile()))
}

var metricsAddress = regexp.MustCompile(`metrics: address=(\S+)`)

func metrics(t *testing.T, b *harness.Broker) string {
	t.Helper()
	found := metricsAddress.FindStringSubmatch(b.Log())
	assert.Assert(t, found != nil)
	at := *b
	at.URL = "http://" + found[1]
	answer := at.Do(http.MethodGet, "/metrics", "", nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%v", answer.Err)
	return string(answer.Body)
}

// files are those that the broker, its plugins and their deaths have left, but for
// those that were written with secrets.
func files(t *testing.T, s *scene, dir string, out said) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || name == "bin" {
			return fs.SkipDir
		}
		if _, ours := s.files[name]; ours || name == "sandbox.hcl" || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		out.add("the file "+name, string(text))
		return err
	})
	assert.NilError(t, err)
}
