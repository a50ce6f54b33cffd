package broker_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestABrokerWhoseFallbackServesIsReady(t *testing.T) {
	b := serve(t, configuration(t, scratch.Dir(t), `
		providers {
		  active   = "broken"
		  fallback = ["mock"]
		}
		provider "broken" {
		  plugin       = "mock"
		  on_configure = "{\"fail\": \"SB003\", \"message\": \"no route\"}"
		}
		provider "mock" {}
	`))
	var status int
	var text string
	poll.WaitOn(t, func(poll.LogT) poll.Result { // until it has failed repeatedly
		if status, text = b.do(http.MethodGet, "/readyz", ""); status != http.StatusOK {
			return poll.Continue("%d: %s", status, text)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	var health client.Health
	assert.NilError(t, json.Unmarshal([]byte(text), &health))
	assert.Assert(t, cmp.Len(health.NotReady, 1))
	assert.Equal(t, health.NotReady[0].Provider, "broken")
	assert.Check(t, cmp.Contains(health.NotReady[0].Reason, "no route"))
	status, text = b.execute(`{"stdout": "served"}`)
	assert.Equal(t, status, http.StatusOK, text)
	assert.Check(t, cmp.Contains(text, `"provider":"mock"`))
}

// A broker whose active provider is not well yet is not ready, and requests wait for it
// although the fallback is.
func TestRequestsWaitForTheActiveProviderAfterTheStart(t *testing.T) {
	state := t.TempDir()
	b := serve(t, configuration(t, state, `
		providers {
		  active   = "first"
		  fallback = ["mock"]
		}
		provider "first" {
		  plugin    = "mock"
		  on_health = "{\"fail\": \"SB009\", \"message\": \"it warms up\"}"
		}
		provider "mock" {}
	`))
	var detail string
	poll.WaitOn(t, func(poll.LogT) poll.Result { // the first probe
		status, text := b.do(http.MethodGet, "/readyz", "")
		if detail = text; status != http.StatusServiceUnavailable {
			return poll.Continue("%d: %s", status, text)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Check(t, cmp.Contains(detail, "provider first is unhealthy: it warms up. New work waits for it until"))
	answered := make(chan string, 1)
	go func() {
		_, text := b.execute(`{"stdout": "served"}`)
		answered <- text
	}()
	steer := filepath.Join(state, "providers", "first", "1", "actions.json")
	assert.NilError(t, os.WriteFile(steer, []byte(`{"health": {}}`), 0o600))
	text := <-answered
	assert.Check(t, cmp.Contains(text, `"provider":"first"`))
	assert.Check(t, cmp.Contains(text, `"routing":{"reason":"active"}`))
	status, text := b.do(http.MethodGet, "/readyz", "")
	assert.Equal(t, status, http.StatusOK, text)
}
