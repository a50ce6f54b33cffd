package broker_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
)

func TestABrokerWhoseFallbackServesIsReady(t *testing.T) {
	b := serve(t, configuration(t, t.TempDir(), `
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
	status, text := b.do(http.MethodGet, "/readyz", "")
	assert.Equal(t, status, http.StatusOK, text)
	var health api.Health
	assert.NilError(t, json.Unmarshal([]byte(text), &health))
	assert.Assert(t, cmp.Len(health.NotReady, 1))
	assert.Equal(t, health.NotReady[0].Provider, "broken")
	assert.Check(t, cmp.Contains(health.NotReady[0].Reason, "no route"))
	status, text = b.execute(`{"stdout": "served"}`)
	assert.Equal(t, status, http.StatusOK, text)
	assert.Check(t, cmp.Contains(text, `"provider":"mock"`))
}
