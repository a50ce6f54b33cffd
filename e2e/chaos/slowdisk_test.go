package chaos_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// A disk that takes 2 s to confirm makes requests wait, or has them refused where the
// operator allows less; then nothing was done, and the log has told before.
func TestASlowDiskIsWaitedForWithinWhatTheOperatorAllows(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for point, test := range map[failpoint.Point]struct{ of, refusal string }{
		failpoint.AuditSync: {`of="audit log"`, "the audit log cannot be written in time, since the broker's disk is slow"},
		failpoint.StateSync: {`of="state file"`, "the broker cannot write its state in time, since its disk is slow"},
	} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed(t), options{disk: time.Second})
			w.start(string(point) + "=delay:2s")
			w.waitReady()
			create := func(key string) answer {
				return w.ask(http.MethodPost, "/api/v1/instances", "red", map[string]any{}, key)
			}
			if w.database != "" && point == failpoint.StateSync {
				test.of, test.refusal = `of="state database"`, "the broker cannot write its state in time, since its database is slow"
			}
			var refused answer
			poll.WaitOn(t, func(poll.LogT) poll.Result { // what the start writes may still be on its way
				if refused = create(""); refused.Status != http.StatusServiceUnavailable {
					return poll.Continue("%v %d %s", refused.Err, refused.Status, refused.Body)
				}
				return poll.Success()
			}, poll.WithTimeout(leakBound))
			assert.Check(t, is.Contains(string(refused.Body), test.refusal))
			assert.Check(t, is.Contains(string(refused.Body), `"code":"SB009"`))
			said := w.lastLog()
			slow := strings.Index(said, "the disk is slow; requests wait for it")
			assert.Assert(t, slow >= 0, said)
			assert.Check(t, is.Contains(said[slow:], test.of))
			assert.Check(t, is.Contains(said[slow:], "refused_after="))
			assert.Equal(t, w.creations(), 0, "nothing was done")

			w.kill()
			w.waitGone()
			w.diskTimeout, w.createTimeout = time.Minute, time.Minute // on a busy machine, too
			w.configure("ordered")
			w.start(string(point) + "=delay:2s")
			w.waitReady()
			began := time.Now()
			made := create("with-a-key")
			assert.Equal(t, made.Status, http.StatusCreated, "%v %s", made.Err, made.Body)
			assert.Check(t, time.Since(began) >= 2*time.Second, "it waited")
			assert.Equal(t, w.creations(), 1)
		})
	}
}
