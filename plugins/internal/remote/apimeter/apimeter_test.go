package apimeter_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/apimeter"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// answers are a service that takes a second for each.
type answers func() (int, error)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Second)
	status, err := a()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: http.NoBody}, nil
}

func lines(metrics []sdk.Metric) (text []string) {
	for _, m := range metrics {
		text = append(text, fmt.Sprint(m.Name, " ", m.Labels["api"], " ", m.Labels["status"], " ", m.Value))
	}
	return text
}

func TestRequestsAreCountedByAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m apimeter.Meter
		assert.Equal(t, len(m.Metrics()), 0)
		ask := func(api string, status int, err error) {
			resp, got := m.Watch(api, answers(func() (int, error) { return status, err })).RoundTrip(httptest.NewRequest(http.MethodGet, "http://service/secret", nil))
			assert.Assert(t, errors.Is(got, err))
			if resp != nil {
				assert.NilError(t, resp.Body.Close())
			}
		}
		ask("control", 200, nil)
		ask("control", 200, nil)
		ask("control", 429, nil)
		ask("sandbox", 0, errors.New("it is away"))
		assert.DeepEqual(t, lines(m.Metrics()), []string{
			"api_requests_total control 200 2", "api_requests_total control 429 1", "api_requests_total sandbox none 1",
			"api_request_seconds_total control 200 2", "api_request_seconds_total control 429 1", "api_request_seconds_total sandbox none 1",
		})
		assert.NilError(t, wire.CheckMetrics(m.Metrics()))
	})
}

func TestAServiceCannotMakeMoreMetricsThanTheBrokerTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m apimeter.Meter
		status := 100
		client := m.Watch("control", answers(func() (int, error) { status++; return status, nil }))
		for range 500 {
			resp, err := client.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
			assert.NilError(t, err)
			assert.NilError(t, resp.Body.Close())
		}
		all := m.Metrics()
		assert.Assert(t, len(all) < 50, "%d", len(all))
		assert.Equal(t, lines(all)[20], "api_requests_total control other 480")
		assert.NilError(t, wire.CheckMetrics(all))
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	var m apimeter.Meter
	closed := false
	client := &http.Client{Transport: m.Watch("control", closing{told: func() { closed = true }})}
	client.CloseIdleConnections()
	assert.Assert(t, closed)
}

type closing struct {
	http.RoundTripper
	told func()
}

func (c closing) CloseIdleConnections() { c.told() }
