package frontdoor

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// Reload has a door closed, moved to another path and opened where it was, by its block in
// the configuration. health is the path below the door that answers 200 without a token.
// What a client does in between is used's: it gets the path where the door is.
func Reload(t *testing.T, b *harness.Broker, door, block, health string, used func(t *testing.T, path string)) {
	t.Helper()
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(text), block))
	usual, other := "/"+door, "/sandboxes/"+door
	moved := strings.Replace(block, "{\n", "{\n  path = \""+other+"\"\n", 1)
	for _, step := range []struct{ block, open, closed string }{{"", "", usual}, {moved, other, usual}, {block, usual, other}} {
		assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(strings.ReplaceAll(string(text), block, step.block)), 0o600))
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if answer := b.Do(http.MethodGet, step.closed+health, "", nil); answer.Status != http.StatusNotFound {
				return poll.Continue("%s: %d", step.closed, answer.Status)
			}
			if step.open == "" {
				return poll.Success()
			}
			if answer := b.Do(http.MethodGet, step.open+health, "", nil); answer.Status != http.StatusOK {
				return poll.Continue("%s: %d", step.open, answer.Status)
			}
			return poll.Success()
		}, poll.WithTimeout(time.Minute))
		if step.open != "" {
			used(t, step.open)
		}
	}
}

// Audited are the operations in the audit log that name the door, sorted, each once. The test
// fails for a line that names another.
func Audited(t *testing.T, b *harness.Broker, door string) (operations []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.Dir, "state", "audit", "*.jsonl"))
	assert.NilError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		for line := range strings.Lines(string(text)) {
			var told struct {
				Operation string `json:"operation"`
				FrontDoor string `json:"front_door"`
			}
			assert.NilError(t, json.Unmarshal([]byte(line), &told), line)
			if told.FrontDoor != "" {
				assert.Check(t, told.FrontDoor == door, line)
				operations = append(operations, told.Operation)
			}
		}
	}
	slices.Sort(operations)
	return slices.Compact(operations)
}
