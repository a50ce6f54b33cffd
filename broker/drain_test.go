package broker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// tenantDoes sends a request of the tenant demo.
func (a *administered) tenantDoes(method, path, body string) (status int, text string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+"/api/v1"+path, bytes.NewReader([]byte(body)))
	assert.NilError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+config.DemoToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(a.t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	assert.NilError(a.t, err)
	return resp.StatusCode, string(answer)
}

func (a *administered) providers() map[string]string {
	a.t.Helper()
	var shown struct {
		Data []struct {
			ID, State string
			Draining  int
		}
	}
	assert.NilError(a.t, json.Unmarshal([]byte(a.must(http.StatusOK, http.MethodGet, "/providers", nil)), &shown))
	states := map[string]string{}
	for _, p := range shown.Data {
		states[p.ID] = fmt.Sprint(p.State, " ", p.Draining)
	}
	return states
}

// A provider is removed that does not end its instances. It is seen as long as it runs,
// which is not for ever, and what it had counts no more.
func TestARemovedProviderThatEndsNothingIsEnded(t *testing.T) {
	const other = "provider \"other\" {\n  plugin = \"mock\"\n  on_destroy = \"{\\\"fail\\\": \\\"SB003\\\"}\"\n}\n"
	for name, left := range map[string]func(a *administered){
		"whose destruction fails": func(a *administered) {
			status, text := a.tenantDoes(http.MethodPost, "/instances", `{"provider": "other"}`)
			assert.Equal(t, status, http.StatusCreated, text)
			var made struct{ ID string }
			assert.NilError(t, json.Unmarshal([]byte(text), &made))
			status, text = a.tenantDoes(http.MethodDelete, "/instances/"+made.ID, "")
			assert.Assert(t, status >= 500, text)
		},
		"whose creations are unclear, and its list is no list": func(a *administered) {
			a.steer("other", `{"create": {"fail": "SB003"}, "list": {"fail": "SB000"}}`)
			status, text := a.tenantDoes(http.MethodPost, "/instances", `{"provider": "other"}`)
			assert.Assert(t, status >= 500, text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := startAdministered(t, "providers { active = \"mock\" }\nquota { max_instances = 1 }\n", other)
			left(a)
			status, text := a.tenantDoes(http.MethodPost, "/instances", `{"provider": "mock"}`)
			assert.Equal(t, status, http.StatusTooManyRequests, text)
			a.edit(without(other))
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				status, text := a.tenantDoes(http.MethodPost, "/instances", `{"provider": "mock"}`)
				if status != http.StatusCreated {
					return poll.Continue("%d %s", status, text)
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				return poll.Compare(is.DeepEqual(a.providers(), map[string]string{"mock": "ready 0"}))
			}, poll.WithTimeout(2*time.Minute))
		})
	}
}

// A removed provider is shown while somebody uses it, however long, and draining.
func TestARemovedProviderIsShownWhileItIsUsed(t *testing.T) {
	const other = "provider \"other\" {\n  plugin = \"mock\"\n}\n"
	a := startAdministered(t, "providers { active = \"mock\" }\n", other)
	status, text := a.tenantDoes(http.MethodPost, "/instances", `{"provider": "other"}`)
	assert.Equal(t, status, http.StatusCreated, text)
	var made struct{ ID string }
	assert.NilError(t, json.Unmarshal([]byte(text), &made))
	a.edit(without(other))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.DeepEqual(a.providers(), map[string]string{"mock": "ready 0", "other": "draining 1"}))
	}, poll.WithTimeout(2*time.Minute))
	for range 200 { // longer than what is unused may take
		status, text := a.tenantDoes(http.MethodPost, "/instances/"+made.ID+"/execute", `{"language": "mock", "code": "{}"}`)
		assert.Equal(t, status, http.StatusOK, text)
	}
	status, text = a.tenantDoes(http.MethodDelete, "/instances/"+made.ID, "")
	assert.Equal(t, status, http.StatusNoContent, text)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.DeepEqual(a.providers(), map[string]string{"mock": "ready 0"}))
	}, poll.WithTimeout(2*time.Minute))
}
