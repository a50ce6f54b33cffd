package chaos_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

// daytonaBackend is a fake of Daytona whose sandboxes run code for real.
type daytonaBackend struct{ fake *daytonafake.Server }

func startDaytona(t *testing.T) daytonaBackend {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	fake, err := daytonafake.Start(daytonafake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, fake.Close()) })
	return daytonaBackend{fake}
}

func (daytonaBackend) label() string { return "daytona" }

// settings have a pause keep files: sandboxes of this class keep no memory.
func (b daytonaBackend) settings() string {
	return fmt.Sprintf(" api_key = %q\n api_url = %q\n pause_by = \"stop\"\n keep_stopped = \"1h\"\n", daytonafake.DefaultAPIKey, b.fake.APIURL)
}

// daytonaLabels is what the provider puts before the broker's labels.
const daytonaLabels = "sandbox-broker."

func (b daytonaBackend) alive(testing.TB) (all []there) {
	for _, id := range b.fake.Sandboxes() {
		i := there{Instance: cloud.Instance{ID: id, Labels: map[string]string{}}, paused: b.fake.State(id) != "started"}
		for name, value := range b.fake.Labels(id) {
			if of, own := strings.CutPrefix(name, daytonaLabels); own {
				i.Labels[of] = value
			}
		}
		all = append(all, i)
	}
	return all
}

func (daytonaBackend) left(testing.TB) []string { return nil }

func TestKillsOverDaytonaLoseAndDoubleNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	killReal(t, options{
		backends: []backend{startDaytona(t)}, clients: 1,
		pace: pace{ask: time.Minute, create: 20 * time.Second, execute: 20 * time.Second, settle: time.Minute, look: 100 * time.Millisecond},
	}, 12, 4)
}
