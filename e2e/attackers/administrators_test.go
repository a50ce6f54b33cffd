package attackers

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// ofAdministrators are those of who has got an administrator's token, and of tenants
// that come under a name that has been another's.
func ofAdministrators() []class {
	sets := func(name, path, setting, value string) attack {
		return attack{name: name, does: func(t *testing.T, s *scene) {
			ran := filepath.Join(s.b.Dir, "ran")
			script := filepath.Join(s.b.Dir, "script")
			assert.NilError(t, os.WriteFile(script, []byte("#!/bin/sh\nid > "+ran+"\n"), 0o755))
			before, err := os.ReadFile(s.b.ConfigFile())
			assert.NilError(t, err)
			answer := s.b.Do(http.MethodPost, adminAPI+path, adminToken, map[string]any{
				"provider_type": "self_managed", "config": map[string]any{setting: strings.ReplaceAll(value, "SCRIPT", script)},
			})
			assert.Check(t, is.Contains(string(answer.Body), "changed in the file"), "%d", answer.Status)
			after, err := os.ReadFile(s.b.ConfigFile())
			assert.NilError(t, err)
			assert.Equal(t, string(after), string(before))
			_, err = os.Stat(ran)
			assert.Check(t, os.IsNotExist(err), "it ran")
		}}
	}
	twice := func(name, path string, body map[string]any) attack {
		return attack{name: name, does: func(t *testing.T, s *scene) {
			var first, again struct{ Token string }
			key := map[string]string{"Idempotency-Key": "secret-" + strings.ReplaceAll(name, " ", "-")}
			target := adminAPI + "/tenants" + path
			if strings.Contains(path, "TOKEN") {
				var tenant struct {
					Data struct{ Tokens []struct{ ID string } }
				}
				s.b.Do(http.MethodGet, adminAPI+"/tenants/keyed", adminToken, nil).Into(t, &tenant)
				target = strings.ReplaceAll(target, "TOKEN", tenant.Data.Tokens[0].ID)
			}
			s.b.DoWith(http.MethodPost, target, adminToken, body, key).Into(t, &first)
			assert.Assert(t, first.Token != "")
			answer := s.b.DoWith(http.MethodPost, target, adminToken, body, key)
			answer.Into(t, &again)
			assert.Equal(t, answer.Header.Get("Idempotency-Replayed"), "true")
			assert.Equal(t, again.Token, "")
			assert.Check(t, !strings.Contains(string(answer.Body), first.Token))
			err := filepath.WalkDir(filepath.Join(s.b.Dir, "state"), func(path string, entry os.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() {
					return nil //nolint:nilerr // sandboxes come and go
				}
				text, err := os.ReadFile(path)
				if err != nil {
					return nil //nolint:nilerr // as above
				}
				assert.Check(t, !strings.Contains(string(text), first.Token), path)
				return nil
			})
			assert.NilError(t, err)
		}}
	}
	next := func(name, method string, path func(l left) string, body map[string]any, headers map[string]string, holds func(t *testing.T, l left, a harness.Answer)) attack {
		return attack{name: name, does: func(t *testing.T, s *scene) {
			l := s.left()
			var sent any
			if body != nil {
				sent = body
			}
			holds(t, l, s.b.DoWith(method, path(l), l.token, sent, headers))
		}}
	}
	gone := func(t *testing.T, _ left, a harness.Answer) {
		assert.Check(t, is.Equal(a.Status, http.StatusNotFound), "%s", a.Body)
	}
	const instances = "/api/v1/instances"
	id := func(l left) string { return strings.TrimPrefix(l.instance, instances+"/") }
	return []class{
		{"settings that name programs", []attack{
			sets("the runtime, in a trial", "/test", "runsc", "SCRIPT"),
			sets("the guest, in a trial", "/test", "guest", "SCRIPT"),
			sets("the root file system, in a trial", "/test", "rootfs", "/"),
			sets("the runtime", "/config", "runsc", "SCRIPT"),
			sets("a daemon's socket", "/config", "docker_host", "unix:///var/run/docker.sock"),
			sets("a directory of the host", "/config", "wheel_dir", "/etc"),
			sets("an index of the attacker's", "/config", "package_index", "http://192.0.2.1/"),
		}},
		{"secrets under a key", []attack{
			twice("of a new tenant", "", map[string]any{"name": "keyed"}),
			twice("of a further token", "/keyed/tokens", nil),
			twice("of a rotated token", "/keyed/tokens/TOKEN/rotate", nil),
		}},
		{"names of tenants that come back", []attack{
			next("to the instance", http.MethodGet, func(l left) string { return l.instance }, nil, nil, gone),
			next("to its files", http.MethodGet, func(l left) string { return l.instance + "/files" }, nil, nil, gone),
			next("to the link", http.MethodGet, func(l left) string { return l.link }, nil, nil, gone),
			next("to the list", http.MethodGet, func(left) string { return instances }, nil, nil, func(t *testing.T, l left, a harness.Answer) {
				assert.Check(t, is.Equal(a.Status, http.StatusOK))
				assert.Check(t, !strings.Contains(string(a.Body), id(l)), "%s", a.Body)
			}),
			next("to the kept answer", http.MethodPost, func(left) string { return instances }, map[string]any{"language": "python", "session_id": "work"}, map[string]string{"Idempotency-Key": "key"}, func(t *testing.T, l left, a harness.Answer) {
				assert.Check(t, is.Equal(a.Status, http.StatusCreated), "%s", a.Body)
				assert.Check(t, is.Equal(a.Header.Get("Idempotency-Replayed"), ""))
				assert.Check(t, !strings.Contains(string(a.Body), id(l)), "%s", a.Body)
			}),
		}},
	}
}
