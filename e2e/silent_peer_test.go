package e2e_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// One stands still with calls that another one has passed on to it: they end once it counts as
// dead, and its session begins anew for who comes again.
func TestCallsAtABrokerThatStandsStillEnd(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := peers(t, 2, cloudConfig, map[string]string{"mock_cloud": mockPlugin})
	a, b := all[0], all[1]
	made := create(t, a, harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
	path := "/api/v1/instances/" + made.ID + "/execute"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	plain := make(chan harness.Answer, 1)
	go func() {
		plain <- b.DoContext(ctx, http.MethodPost, path, harness.Token, map[string]any{"language": "mock", "timeout": 300, "code": `{"delay": "5m"}`})
	}()
	await(t, b, "the execution has begun", func() bool {
		var i client.Instance
		b.Do(http.MethodGet, "/api/v1/instances/"+made.ID, harness.Token, nil).Into(t, &i)
		return i.Executions == 1
	})
	stream, err := b.Stream(ctx, path, map[string]any{"language": "mock", "timeout": 300, "code": `{"lines": 3000, "lines_per_second": 10}`})
	assert.NilError(t, err)
	defer stream.Close()
	assert.NilError(t, stream.Until("\n"))

	a.Suspend()
	began := time.Now()
	answer := <-plain
	assert.NilError(t, answer.Err)
	harness.Refused(t, answer, http.StatusServiceUnavailable, "SB009")
	assert.Check(t, answer.Header.Get("Retry-After") != "")
	for err == nil {
		_, _, err = stream.Next()
	}
	assert.NilError(t, ctx.Err(), "the stream ends with the broker: %v", err)
	t.Logf("both have ended after %v: %v", time.Since(began), err)
	await(t, b, "the session begins anew", func() bool {
		answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "s", "ttl": 3600})
		return answer.Status == http.StatusCreated
	})
	assert.NilError(t, syscall.Kill(a.PID, syscall.SIGCONT))
	<-a.Ended()
}
