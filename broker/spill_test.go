package broker_test

import (
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
)

// A pool that is full overflows to the fallback, and has its queue for who names it.
func TestAFullPoolOverflowsToTheFallback(t *testing.T) {
	b := serve(t, configuration(t, t.TempDir(), `
		providers {
		  active   = "small"
		  fallback = ["mock"]
		}
		provider "small" {
		  plugin = "mock"
		  room   = 1
		}
		provider "mock" {}
	`))
	status, first := b.do(http.MethodPost, "/api/v1/instances", `{"session_id": "one"}`)
	assert.Equal(t, status, http.StatusCreated, first)
	assert.Check(t, cmp.Contains(first, `"provider":"small"`))
	began := time.Now()
	status, text := b.do(http.MethodPost, "/api/v1/instances", `{"session_id": "two"}`)
	assert.Equal(t, status, http.StatusCreated, text)
	assert.Check(t, cmp.Contains(text, `"provider":"mock"`))
	assert.Check(t, cmp.Contains(text, `"routing":{"reason":"fallback","tried":[{"provider":"small","code":"SB008"}]}`))
	assert.Check(t, time.Since(began) < time.Minute, "it waited in the plugin's queue")

	answered := make(chan string, 1)
	go func() {
		_, text := b.do(http.MethodPost, "/api/v1/instances", `{"session_id": "three", "provider": "small"}`)
		answered <- text
	}()
	status, text = b.do(http.MethodPost, "/api/v1/execute", `{"language": "mock", "code": "{}", "session_id": "one", "keep": false}`)
	assert.Equal(t, status, http.StatusOK, text)
	assert.Check(t, cmp.Contains(<-answered, `"provider":"small"`))
}
