package e2e_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// Brokers on one database note the ends of each other's audit logs, and the command finds the one
// that was cut off, by the others' logs and by the database.
func TestTheAuditLogsOfBrokersProveEachOther(t *testing.T) {
	t.Parallel()
	all := peers(t, 2, cloudConfig, map[string]string{"mock_cloud": mockPlugin})
	for _, b := range all {
		create(t, b, harness.Token, map[string]any{"ttl": 600})
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": `{"stdout": "works"}`})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	}
	logOf := func(b *harness.Broker) string { return filepath.Join(b.Dir, "state", "audit") }
	text := func(b *harness.Broker) string {
		segments, err := audit.Segments(logOf(b))
		assert.NilError(t, err)
		all, err := os.ReadFile(segments[len(segments)-1].Path)
		assert.NilError(t, err)
		return string(all)
	}
	for n, b := range all {
		other := all[1-n]
		await(t, b, "the log has the other's head", func() bool { return strings.Contains(text(b), `"broker":"`+brokerID(t, other)+`","seq":`) })
	}
	verify := func(code int, arguments ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), filepath.Join(all[0].Dir, "bin", "sandbox-broker"), append([]string{"audit", "verify", "--together"}, arguments...)...)
		said, err := command.CombinedOutput()
		assert.Check(t, is.Equal(command.ProcessState.ExitCode(), code), "%v %s", err, said)
		return string(said)
	}
	said := verify(0, logOf(all[0]), logOf(all[1]), "--config", all[0].ConfigFile())
	assert.Check(t, is.Contains(said, "of broker "+brokerID(t, all[1])))
	assert.Check(t, is.Contains(said, " in one order"))
	for _, b := range all {
		assert.Equal(t, b.Stop(), 0)
	}
	verify(0, logOf(all[0]), logOf(all[1]))

	segments, err := audit.Segments(logOf(all[1]))
	assert.NilError(t, err)
	path := segments[len(segments)-1].Path
	lines := bytes.SplitAfter([]byte(text(all[1])), []byte("\n"))
	last := 0
	for n, line := range lines {
		if bytes.Contains(line, []byte(`"heads":`)) {
			last = n
		}
	}
	assert.NilError(t, os.WriteFile(path, bytes.Join(lines[:last-1], nil), 0o600))
	assert.Check(t, is.Contains(verify(1, logOf(all[0]), logOf(all[1]), "--config", all[0].ConfigFile()), "missing: it ends with number"))
	assert.NilError(t, os.WriteFile(path, bytes.Join(lines[:3], nil), 0o600))
	assert.Check(t, is.Contains(verify(1, logOf(all[0]), logOf(all[1])), "missing: "))
}
