package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// routed is what an answer says of who served.
type routed struct {
	Provider string `json:"provider"`
	Routing  struct {
		Reason string `json:"reason"`
		Tried  []struct {
			Provider string `json:"provider"`
			Code     string `json:"code"`
		} `json:"tried"`
	} `json:"routing"`
}

// The plugin of the active provider is killed under load, and does not come back.
func TestTheFallbackServesWhenTheActiveProviderIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + `
			providers {
			  active   = "mock"
			  fallback = ["spare"]
			}
			provider "mock" {}
			provider "spare" {}
		`,
		Plugins: map[string]string{"mock": mockPlugin, "spare": mockPlugin},
	})
	create := func() (routed, harness.Answer) {
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": `{"stdout": "x"}`})
		var r routed
		_ = json.Unmarshal(answer.Body, &r) // a problem names its provider too
		return r, answer
	}
	first, answer := create()
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	assert.Equal(t, first.Provider, "mock")
	assert.Equal(t, first.Routing.Reason, "active")

	var load sync.WaitGroup
	var stop, opened atomic.Bool
	var served, bySpare, failed, failedAfter atomic.Int64
	for range 8 {
		load.Go(func() {
			for !stop.Load() {
				after := opened.Load()
				r, answer := create()
				switch {
				case answer.Status == http.StatusOK && r.Provider == "spare" && r.Routing.Reason == "fallback" && len(r.Routing.Tried) > 0:
					bySpare.Add(1)
				case answer.Status == http.StatusOK && r.Provider == "mock" && r.Routing.Reason == "active":
				default:
					failed.Add(1)
					if after {
						failedAfter.Add(1)
					}
					continue
				}
				served.Add(1)
			}
		})
	}
	defer load.Wait()
	defer stop.Store(true)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if served.Load() < 50 {
			return poll.Continue("%d served", served.Load())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	steer := filepath.Join(stateOf(t, b, "mock"), "actions.json")
	assert.NilError(t, os.WriteFile(steer, []byte(`{"configure": {"crash": "before", "crash_with": "exit:9"}}`), 0o600))
	assert.NilError(t, syscall.Kill(b.Plugin("mock"), syscall.SIGKILL))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if bySpare.Load() < 1 {
			return poll.Continue("the fallback has not served yet; %d failed", failed.Load())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	opened.Store(true)
	enough := bySpare.Load() + 200
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if bySpare.Load() < enough {
			return poll.Continue("%d by the fallback", bySpare.Load())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, failedAfter.Load(), int64(0), "failed although the fallback serves")
	t.Logf("%d served, %d of them by the fallback; %d failed, which ran when the plugin was killed", served.Load(), bySpare.Load(), failed.Load())
}
