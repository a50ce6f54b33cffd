package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// archive answers what it is told to.
type archive struct {
	asked audit.Query
	err   error
}

func (a *archive) Search(_ context.Context, q audit.Query) (audit.Found, error) {
	a.asked = q
	return audit.Found{Lines: []json.RawMessage{[]byte(`{"seq":2,"session_id":"<b>\u2028\n"}`), []byte(`{"seq":1}`)}, Next: "bmV4dA"}, a.err
}

func (a *archive) Check(context.Context) (audit.Chain, error) {
	return audit.Chain{State: audit.ChainBroken, Lines: 7, Checked: then, Detail: "audit-1.jsonl:8: changed"}, a.err
}

func TestAnAdministratorSearchesTheAuditLog(t *testing.T) {
	a := &archive{}
	f := start(t, withAdmin, func(o *api.Options, _ *fixture) { o.AuditArchive = a })
	query := url.Values{
		"tenant": {"acme"}, "operation": {"execute_code"}, "outcome": {"error"}, "instance": {"acme:s:i"}, "request_id": {"r"}, "provider": {"p"},
		"text": {"<b>"}, "since": {"2026-11-27T06:00:00Z"}, "until": {"2026-11-27T08:00:00.5+01:00"}, "limit": {"500"}, "before": {"MS4x"},
	}
	got := f.asAdmin(http.MethodGet, "/audit?"+query.Encode(), "").wants(http.StatusOK)
	var answer struct {
		Data []map[string]any
		Next string
	}
	got.decode(&answer)
	assert.DeepEqual(t, answer.Data, []map[string]any{{"seq": 2.0, "session_id": "<b>\u2028\n"}, {"seq": 1.0}})
	assert.Equal(t, answer.Next, "bmV4dA")
	var chain struct{ Chain json.RawMessage }
	got.decode(&chain)
	assert.Equal(t, string(chain.Chain), `{"state":"broken","lines":7,"checked_at":"`+then.UTC().Format(time.RFC3339)+`","detail":"audit-1.jsonl:8: changed"}`)
	assert.DeepEqual(t, a.asked, audit.Query{
		Tenant: "acme", Operation: "execute_code", Outcome: "error", Instance: "acme:s:i", RequestID: "r", Provider: "p", Text: "<b>",
		Since: time.Date(2026, 11, 27, 6, 0, 0, 0, time.UTC), Until: time.Date(2026, 11, 27, 7, 0, 0, 5e8, time.UTC), Limit: 500, Before: "MS4x",
	})
	f.asAdmin(http.MethodGet, "/audit", "").wants(http.StatusOK)
	assert.DeepEqual(t, a.asked, audit.Query{Limit: 100})
	for _, wrong := range []string{"since=yesterday", "until=12", "limit=0", "limit=501", "tenant=", "who=x"} {
		f.asAdmin(http.MethodGet, "/audit?"+wrong, "").problem(http.StatusUnprocessableEntity, "SB010")
	}
	f.do(http.MethodGet, adminPath+"/audit", "").problem(http.StatusForbidden, "SB012")

	a.err = sdk.FieldErrorf(sdk.CodeInvalidRequest, "before", "must be next of an earlier answer")
	assert.Equal(t, f.asAdmin(http.MethodGet, "/audit?before=x", "").problem(http.StatusUnprocessableEntity, "SB010").Field, "before")
	a.err = errors.New("input/output error")
	f.asAdmin(http.MethodGet, "/audit", "").problem(http.StatusServiceUnavailable, "SB009")
}

func TestWithoutAnAuditLogThereIsNothingInIt(t *testing.T) {
	f := start(t, withAdmin)
	var answer struct {
		Data  []any
		Chain struct{ State string }
	}
	f.asAdmin(http.MethodGet, "/audit", "").wants(http.StatusOK).decode(&answer)
	assert.Equal(t, answer.Chain.State, "off")
	assert.Assert(t, answer.Data != nil && len(answer.Data) == 0)
}
