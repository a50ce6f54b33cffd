package broker_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
)

// A cloud that answers creations with errors holds up no request for longer than the
// operator wants, and when its circuit is open none at all.
func TestACloudThatFailsCreationsIsNotWaitedFor(t *testing.T) {
	t.Setenv("MOCK_START", "cloud")
	b := serve(t, configuration(t, t.TempDir(), `
		providers {
		  active          = "ill"
		  fallback        = ["mock"]
		  unclear_timeout = "300ms"
		}
		provider "ill" {
		  plugin    = "mock"
		  env       = ["MOCK_START"]
		  on_create = "{\"fail\": \"SB003\", \"message\": \"it answers with 500\"}"
		}
		provider "mock" {}
	`))
	began := time.Now()
	for n := range 6 {
		status, text := b.do(http.MethodPost, "/api/v1/instances", fmt.Sprintf(`{"session_id": "s-%d"}`, n))
		assert.Equal(t, status, http.StatusCreated, text)
		assert.Check(t, cmp.Contains(text, `"provider":"mock"`))
		assert.Check(t, cmp.Contains(text, `"reason":"fallback"`))
	}
	// Each would wait for a minute.
	assert.Check(t, time.Since(began) < 3*time.Minute, "they waited for a list to be believed")
}
