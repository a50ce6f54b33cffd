package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// auditLine is what these tests read of a line of the audit log.
type auditLine struct {
	Event      string   `json:"event"`
	EffectID   string   `json:"effect_id"`
	Operation  string   `json:"operation"`
	Cause      string   `json:"cause"`
	TenantID   string   `json:"tenant_id"`
	SessionID  string   `json:"session_id"`
	InstanceID string   `json:"instance_id"`
	RequestID  string   `json:"request_id"`
	Remote     string   `json:"remote"`
	CodeHash   string   `json:"code_hash"`
	Status     string   `json:"status"`
	ExitCode   *int     `json:"exit_code"`
	EnvNames   []string `json:"env_names"`
	Change     string   `json:"change"`
}

func auditDir(b *harness.Broker) string { return filepath.Join(b.Dir, "state", "audit") }

// auditLines reads the log of a broker; text is all of it.
func auditLines(t testing.TB, dir string) (lines []auditLine, text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	assert.NilError(t, err)
	slices.Sort(files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		assert.NilError(t, err)
		text += string(content)
		for line := range bytes.Lines(content) {
			var l auditLine
			assert.NilError(t, json.Unmarshal(line, &l))
			lines = append(lines, l)
		}
	}
	return lines, text
}

// ends returns the last lines of effects of one kind.
func ends(lines []auditLine, operation string) (found []auditLine) {
	for _, l := range lines {
		if l.Event == "end" && l.Operation == operation {
			found = append(found, l)
		}
	}
	return found
}

// verifyAudit runs `sandbox-broker audit verify --json`.
func verifyAudit(t testing.TB, dir string) (report struct {
	OK            bool `json:"ok"`
	Lines, Open   int
	Problem       any
	Effects, Last int
},
) {
	t.Helper()
	out, err := exec.Command(filepath.Join(binaries.Dir(t), "sandbox-broker"), "audit", "verify", "--json", dir).Output()
	assert.NilError(t, err, "%s", out)
	assert.NilError(t, json.Unmarshal(out, &report))
	return report
}

func TestWhatATenantDoesIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	code := `{"stdout": "hi\n", "exit_code": 3}`
	first := b.Execute(t, map[string]any{"language": "mock", "code": code, "session_id": "s", "env": map[string]string{"KEY": "hunter2"}, "arguments": map[string]string{"password": "hunter2"}})
	answer := b.Do(http.MethodDelete, "/api/v1/instances/"+first.InstanceID, harness.Token, nil)
	assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
	lines, text := auditLines(t, auditDir(b))
	executed, destroyed := ends(lines, "execute_code"), ends(lines, "destroy_instance")
	assert.Assert(t, is.Len(executed, 1))
	l := executed[0]
	assert.Equal(t, l.TenantID, "acme")
	assert.Equal(t, l.SessionID, "s")
	assert.Equal(t, l.InstanceID, first.InstanceID)
	assert.Equal(t, l.Cause, "request")
	assert.Equal(t, l.CodeHash, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(code))))
	assert.Equal(t, l.Status, "failed")
	assert.Equal(t, *l.ExitCode, 3)
	assert.DeepEqual(t, l.EnvNames, []string{"KEY"})
	assert.Check(t, l.RequestID != "" && strings.HasPrefix(l.Remote, "127.0.0.1:"), "%+v", l)
	assert.Assert(t, is.Len(destroyed, 1))
	assert.Equal(t, destroyed[0].Cause, "request")
	assert.Assert(t, is.Len(ends(lines, "create_instance"), 1))
	assert.Check(t, !strings.Contains(text, "hunter2") && !strings.Contains(text, "exit_code\\\""), "neither secrets nor code")

	rewrite(t, b, func(text string) string { return text + "audit {\n  include_code = true\n}\n" })
	awaitLog(t, b, inForce, 1)
	b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "included"}`})
	lines, text = auditLines(t, auditDir(b))
	assert.Check(t, is.Contains(text, "included"))
	changes := ends(lines, "change_configuration")
	assert.Assert(t, is.Len(changes, 1))
	assert.Equal(t, changes[0].Change, "settings: audit")
	rewrite(t, b, with("include_code = true", "dir = \"elsewhere\""))
	awaitLog(t, b, "audit.dir cannot change while the broker runs", 1)
	assert.Check(t, verifyAudit(t, auditDir(b)).OK)
}

func TestTheAuditLogIsSentToAWebhookThatIsAddedWhileTheBrokerRuns(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err)
		got <- r.Header.Get("Authorization") + "\n" + string(body)
	}))
	defer server.Close()
	b := startMock(t, "")
	block := fmt.Sprintf("audit {\n  webhook = %q\n  webhook_token = \"hunter2\"\n}\n", server.URL)
	rewrite(t, b, func(text string) string { return text + block })
	awaitLog(t, b, inForce, 1)
	b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "x"}`, "session_id": "sent"})
	assert.Equal(t, b.Stop(), 0)
	close(got)
	var sent string
	for body := range got {
		assert.Check(t, strings.HasPrefix(body, "Bearer hunter2\n"))
		sent += body
	}
	for _, text := range []string{`"operation":"execute_code"`, `"session_id":"sent"`, `"cause":"shutdown"`, "the broker stops"} {
		assert.Check(t, is.Contains(sent, text), "to the end")
	}
	assert.Check(t, !strings.Contains(b.Log(), "hunter2"))
}

func TestTheAuditLogOutlivesAKill(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for { // until there is nobody to answer
				request := map[string]any{"language": "mock", "code": `{"stdout": "x"}`, "session_id": fmt.Sprint("busy", i)}
				if b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request).Status != http.StatusOK {
					return
				}
			}
		})
		wg.Go(func() {
			b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": `{"hang": true}`, "session_id": fmt.Sprint("s", i), "timeout": 60})
		})
	}
	for i := range 4 {
		running(t, b, fmt.Sprint("s", i))
	}
	b.Kill()
	b.WaitGone()
	wg.Wait()
	dir := auditDir(b)
	cut := verifyAudit(t, dir)
	assert.Check(t, cut.Open >= 4, "%+v", cut)

	next := harness.Start(t, harness.Options{
		Config: harness.Tenants + "provider \"mock\" {}\n", Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(in string) {
			state := filepath.Join(in, "state")
			assert.NilError(t, os.Mkdir(state, 0o700))
			assert.NilError(t, os.CopyFS(filepath.Join(state, "audit"), os.DirFS(dir)))
			assert.NilError(t, os.Chmod(filepath.Join(state, "audit"), 0o700))
			assert.NilError(t, os.WriteFile(filepath.Join(state, "lock"), nil, 0o600))
		},
	})
	after := verifyAudit(t, auditDir(next))
	assert.Equal(t, after.Open, 0, "the next run knows of them")
	lines, _ := auditLines(t, auditDir(next))
	unknown := 0
	for _, l := range lines {
		if l.Event == "end" && l.Status == "unknown" {
			unknown++
		}
	}
	assert.Equal(t, unknown, cut.Open)
}

func TestNothingHappensWhileTheAuditLogIsFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("a small file system takes root: %v", err)
	}
	t.Cleanup(func() { assert.Check(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	b := harness.Start(t, harness.Options{
		Config:  harness.Tenants + fmt.Sprintf("audit {\n  dir = %q\n}\nprovider \"mock\" {}\n", filepath.Join(disk, "audit")),
		Plugins: map[string]string{"mock": mockPlugin},
	})
	works := map[string]any{"language": "mock", "code": `{"stdout": "works"}`, "session_id": "s"}
	b.Execute(t, works)
	ballast := filepath.Join(disk, "ballast")
	assert.ErrorIs(t, os.WriteFile(ballast, make([]byte, 1<<20), 0o600), unix.ENOSPC)
	poll.WaitOn(t, func(poll.LogT) poll.Result { // there is room in the last page
		if answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, works); answer.Status == http.StatusOK {
			return poll.Continue("it still works")
		}
		return poll.Success()
	}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
	p := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, works), http.StatusServiceUnavailable, "SB009")
	assert.Check(t, p.Retryable)
	assert.Check(t, is.Contains(p.Detail, "audit log cannot be written"))
	ready := harness.Refused(t, b.Do(http.MethodGet, "/readyz", "", nil), http.StatusServiceUnavailable, "SB009")
	assert.Check(t, is.Contains(ready.Detail, "audit log"))

	assert.NilError(t, os.Remove(ballast))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, works); answer.Status != http.StatusOK {
			return poll.Continue("%s", answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, b.Do(http.MethodGet, "/readyz", "", nil).Status, http.StatusOK)
	assert.Check(t, verifyAudit(t, filepath.Join(disk, "audit")).OK)
}
