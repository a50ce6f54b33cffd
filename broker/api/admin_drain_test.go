package api_test

import (
	"context"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// drain is a switch.
type drain struct {
	on  bool
	err error
}

func (d *drain) Drained() bool { return d.on }

func (d *drain) SetDrained(_ context.Context, on bool) error {
	if d.err == nil {
		d.on = on
	}
	return d.err
}

func TestDrainIsTheAdministrators(t *testing.T) {
	d := &drain{}
	f := start(t, withAdmin, func(o *api.Options, _ *fixture) { o.Drain = d })
	f.do(http.MethodGet, adminPath+"/drain", "").problem(http.StatusForbidden, "SB012")
	f.do(http.MethodPut, adminPath+"/drain", `{"draining":true}`).problem(http.StatusForbidden, "SB012")
	assert.Check(t, !d.on)
	assert.Equal(t, f.asAdmin(http.MethodGet, "/drain", "").wants(http.StatusOK).text, `{"data":{"draining":false,"instances":0}}`)
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s"}`).wants(http.StatusCreated)
	assert.Equal(t, f.asAdmin(http.MethodPut, "/drain", `{"draining":true}`).wants(http.StatusOK).text, `{"data":{"draining":true,"instances":1}}`)
	assert.Check(t, is.Contains(f.do(http.MethodGet, "/readyz", "").problem(http.StatusServiceUnavailable, "SB009").Detail, "draining"))
	f.do(http.MethodGet, "/healthz", "").wants(http.StatusOK)
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id":"other"}`).wants(http.StatusCreated) // as there is nobody else
	for _, body := range []string{`{}`, `{"draining":"yes"}`, `{"draining":true,"for":1}`} {
		f.asAdmin(http.MethodPut, "/drain", body).problem(http.StatusUnprocessableEntity, "SB010")
	}
	d.err = sdk.Errorf(sdk.CodeUnavailable, "the database is away")
	f.asAdmin(http.MethodPut, "/drain", `{"draining":false}`).problem(http.StatusServiceUnavailable, "SB009")
	d.err = nil
	f.asAdmin(http.MethodPut, "/drain", `{"draining":false}`).wants(http.StatusOK)
	assert.Check(t, !d.on)
}
