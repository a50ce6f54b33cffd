package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// live is an instance as the API shows it.
type live struct {
	ID         string    `json:"id"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"last_used_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	TTL        float64   `json:"ttl"`
	Idle       float64   `json:"idle"`
}

// startMockWithLimits starts a broker with a mock provider that keeps a list of
// its instances in a file.
func startMockWithLimits(t *testing.T, limits string) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config:  harness.Tenants + fmt.Sprintf("limits {\n  %s\n}\nprovider \"mock\" {\n  persist = true\n}\n", limits),
		Plugins: map[string]string{"mock": mockPlugin},
	})
}

func createLive(t *testing.T, b *harness.Broker, request map[string]any) live {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, request)
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var i live
	answer.Into(t, &i)
	return i
}

func renew(t *testing.T, b *harness.Broker, i live, ttl float64) live {
	t.Helper()
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+i.ID+"/renew", harness.Token, map[string]any{"ttl": ttl})
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer.Into(t, &i)
	return i
}

// gone waits until nobody has the instances any more: the broker first, and then
// the provider.
func gone(t *testing.T, b *harness.Broker, all ...live) {
	t.Helper()
	for _, i := range all {
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			return poll.Compare(is.Equal(b.Do(http.MethodGet, "/api/v1/instances/"+i.ID, harness.Token, nil).Status, http.StatusNotFound))
		}, poll.WithTimeout(2*time.Minute))
		p := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/instances/"+i.ID+"/renew", harness.Token, nil), http.StatusNotFound, "SB013")
		assert.Check(t, is.Contains(p.Detail, "create a new one"))
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(madeByMock(t, b), 0)) }, poll.WithTimeout(2*time.Minute))
}

// madeByMock is when each instance that the provider has would end by itself.
func madeByMock(t *testing.T, b *harness.Broker) map[string]time.Time {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, "state", "providers", "mock", "1", "instances.json"))
	assert.NilError(t, err)
	var all map[string]struct {
		Instance struct{ ExpiresAt time.Time }
	}
	assert.NilError(t, json.Unmarshal(text, &all))
	ends := map[string]time.Time{}
	for id, one := range all {
		ends[id] = one.Instance.ExpiresAt
	}
	return ends
}

func TestAnInstanceEndsByItself(t *testing.T) {
	t.Parallel()
	b := startMockWithLimits(t, `max_idle = "1h"`)
	expires := createLive(t, b, map[string]any{"ttl": 0.5})
	assert.Equal(t, expires.ExpiresAt.Sub(expires.CreatedAt), 500*time.Millisecond)
	assert.Equal(t, expires.Idle, 3600.0)
	idles := createLive(t, b, map[string]any{"idle": 0.5})
	assert.Equal(t, idles.TTL, 300.0)
	assert.Equal(t, idles.ExpiresAt.Sub(idles.CreatedAt), 5*time.Minute)
	gone(t, b, expires, idles)
}

func TestARenewalMovesTheEnd(t *testing.T) {
	t.Parallel()
	b := startMockWithLimits(t, `max_lifetime = "2h"`)
	made := createLive(t, b, map[string]any{"ttl": 600})
	for id, end := range madeByMock(t, b) {
		assert.Check(t, end.After(made.CreatedAt.Add(2*time.Hour+10*time.Minute)), "the provider would end %s at %s", id, end)
	}
	renewed := renew(t, b, made, 3600)
	assert.Equal(t, renewed.ExpiresAt.Sub(renewed.LastUsedAt), time.Hour)
	renewed = renew(t, b, made, 86400)
	assert.Equal(t, renewed.ExpiresAt.Sub(made.CreatedAt), 2*time.Hour, "no more than the maximum lifetime")

	var listed struct{ Instances []live }
	b.Do(http.MethodGet, "/api/v1/instances", harness.Token, nil).Into(t, &listed)
	assert.DeepEqual(t, listed.Instances, []live{renewed})

	foreign := b.Do(http.MethodPost, "/api/v1/instances/"+made.ID+"/renew", harness.OtherToken, nil)
	harness.Refused(t, foreign, http.StatusNotFound, "SB013")
	refused := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"ttl": 7201})
	assert.Equal(t, harness.Refused(t, refused, http.StatusUnprocessableEntity, "SB010").Field, "ttl")

	renew(t, b, made, 0.1)
	gone(t, b, made)
}

func TestAnExecutionOutlivesTheMaximumLifetimeAndItsSessionGoesOn(t *testing.T) {
	t.Parallel()
	b := startMockWithLimits(t, `max_lifetime = "1s"`)
	run := func(code string) harness.Execution {
		t.Helper()
		e := b.Execute(t, map[string]any{"language": "mock", "code": code, "session_id": "s"})
		assert.Equal(t, e.Status, "succeeded")
		return e
	}
	first := run(`{"delay": "2s"}`)
	next := run(`{}`)
	assert.Check(t, next.InstanceID != first.InstanceID)
	gone(t, b, live{ID: first.InstanceID}, live{ID: next.InstanceID})
}
