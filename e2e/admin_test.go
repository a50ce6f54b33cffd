package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const adminToken = "token-of-admin"

// adminBlock is a piece of configuration with an administrator.
func adminBlock() string {
	sum := sha256.Sum256([]byte(adminToken))
	return "admin { token_sha256 = [\"" + hex.EncodeToString(sum[:]) + "\"] }\n"
}

// adminProvider is what an administrator sees of a provider.
type adminProvider struct {
	ID, State, Reason string
	Healthy           bool
	Restarts, PID     int
	Plugin            struct {
		Name, Version, File, Path, SHA256 string
		Pinned                            bool
	}
	LastError *struct {
		Message, Stderr string
		At              time.Time
	} `json:"last_error"`
	ConfigSchema map[string]struct {
		Type   string
		Secret bool
	} `json:"config_schema"`
	Details map[string]string
}

func seenByAdmin(t *testing.T, b *harness.Broker, label string) (p adminProvider, text string) {
	t.Helper()
	answer := b.Do(http.MethodGet, "/api/admin/sandbox/providers/"+label, adminToken, nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var data struct{ Data *adminProvider }
	data.Data = &p
	answer.Into(t, &data)
	return p, string(answer.Body)
}

func TestAnAdministratorLearnsWhyAPluginDied(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-the-provider"
	program, err := os.ReadFile(mockPlugin)
	assert.NilError(t, err)
	sum := sha256.Sum256(program)
	pin := hex.EncodeToString(sum[:])
	b := harness.Start(t, harness.Options{
		Config:  harness.Tenants + adminBlock() + "provider \"mock\" {\n  secret = \"" + secret + "\"\n  sha256 = \"" + pin + "\"\n}\n",
		Plugins: map[string]string{"mock": mockPlugin},
	})
	before, text := seenByAdmin(t, b, "mock")
	assert.Equal(t, before.ID, "mock")
	assert.Equal(t, before.State, "ready")
	assert.Check(t, before.Healthy && before.Plugin.Pinned)
	assert.Equal(t, before.PID, b.Plugin("mock"))
	assert.Equal(t, before.Plugin.SHA256, pin)
	assert.Equal(t, before.Plugin.Path, filepath.Join(b.Dir, "bin", "plugins", "mock"))
	assert.Equal(t, before.Plugin.Version, "0.0.1")
	assert.Check(t, before.LastError == nil)
	assert.Check(t, before.ConfigSchema["secret"].Secret && before.ConfigSchema["persist"].Type == "boolean")
	assert.Check(t, !strings.Contains(text, secret))

	answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{
		"language": "mock", "code": `{"log_raw": "last words with ` + secret + `\u001b[31m\n", "crash": "before", "crash_with": "panic"}`,
	})
	harness.Refused(t, answer, http.StatusServiceUnavailable, "SB009")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		after, text := seenByAdmin(t, b, "mock")
		if after.LastError == nil || after.State != "ready" || after.Restarts != 1 {
			return poll.Continue("%s", text)
		}
		assert.Check(t, is.Equal(after.LastError.Message, `provider "mock": the plugin exited with status 2`))
		assert.Check(t, is.Contains(after.LastError.Stderr, "last words with (secret)"))
		assert.Check(t, is.Contains(after.LastError.Stderr, "panic: the mock provider was told to crash"))
		assert.Check(t, after.PID != before.PID && after.PID == b.Plugin("mock"))
		assert.Check(t, time.Since(after.LastError.At) < time.Minute)
		assert.Check(t, !strings.Contains(text, secret) && !strings.Contains(text, `\u001b`))
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Check(t, !strings.Contains(b.Log(), secret))

	harness.Refused(t, b.Do(http.MethodGet, "/api/admin/sandbox/providers", harness.Token, nil), http.StatusForbidden, "SB012")
	harness.Refused(t, b.Do(http.MethodGet, "/api/admin/sandbox/providers", "", nil), http.StatusUnauthorized, "SB011")
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/providers", adminToken, nil), http.StatusUnauthorized, "SB011")
}

func TestAnAdministratorComesWithAReload(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	const path = "/api/admin/sandbox/providers"
	for _, token := range []string{harness.Token, adminToken, ""} {
		p := harness.Refused(t, b.Do(http.MethodGet, path, token, nil), http.StatusForbidden, "SB012")
		assert.Check(t, is.Contains(p.Detail, "sandbox-broker token"))
	}
	file, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(b.ConfigFile()+".new", append(file, adminBlock()...), 0o644))
	assert.NilError(t, os.Rename(b.ConfigFile()+".new", b.ConfigFile()))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(b.Do(http.MethodGet, path, adminToken, nil).Status, http.StatusOK))
	}, poll.WithTimeout(2*time.Minute))
	harness.Refused(t, b.Do(http.MethodGet, path, harness.Token, nil), http.StatusForbidden, "SB012")
}
