package v1

import (
	"context"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// AuditArchive looks into the audit log; audit.Archive is it.
type AuditArchive interface {
	Search(ctx context.Context, q audit.Query) (audit.Found, error)
	Check(ctx context.Context) (audit.Chain, error)
}

// maxAuditPage is the most lines in an answer.
const maxAuditPage = 500

// adminAuditRoutes are for administrators.
type adminAuditRoutes struct{ archive AuditArchive }

func (h adminAuditRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathAdmin + "/audit", ID: "adminSearchAudit", Tag: tagAdmin, Admin: true,
		Summary: "Look for lines of the audit log",
		Details: "The newest first. After some seconds it answers what it has found so far, and next. " +
			"The chain of the log is checked as `sandbox-broker audit verify` does; what was checked before and is as it was then is not read again.",
		Query: []rest.Parameter{
			{Name: "tenant", Doc: "Only of this tenant."},
			{Name: "operation", Doc: "Only of this operation, also where an effect covers it."},
			{Name: "outcome", Doc: "Only with this status, which the last line of an effect has."},
			{Name: "instance", Doc: "Only of this instance, by its ID or by the provider's own name for it."},
			{Name: "request_id", Doc: "Only of this request."},
			{Name: "provider", Doc: "Only of this provider."},
			{Name: "text", Doc: "Only with this in one of the texts of the line, in whatever case. A hash is found as a whole."},
			{Name: "since", Doc: "Not before this time, such as 2026-11-27T06:00:00Z."},
			{Name: "until", Doc: "Not after this time."},
			{Name: "limit", Kind: rest.Integer, Least: 1, Most: maxAuditPage, Doc: "At most so many; 100 unless given."},
			{Name: "before", Doc: "Only those before this place: next of the page before."},
		},
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeQuotaExceeded, sdk.CodeUnavailable},
	}, h.search)
}

func (h adminAuditRoutes) search(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminAudit, error) {
	q := audit.Query{
		Tenant: c.Query.Text("tenant"), Operation: c.Query.Text("operation"), Outcome: c.Query.Text("outcome"),
		Instance: c.Query.Text("instance"), RequestID: c.Query.Text("request_id"), Provider: c.Query.Text("provider"),
		Text: c.Query.Text("text"), Limit: int(c.Query.Integer("limit", defaultPage)), Before: c.Query.Text("before"),
	}
	var err error
	if q.Since, err = timeIn(c, "since"); err != nil {
		return 0, client.AdminAudit{}, err
	}
	if q.Until, err = timeIn(c, "until"); err != nil {
		return 0, client.AdminAudit{}, err
	}
	answer := client.AdminAudit{Data: []client.JSONObject{}, Chain: client.AdminAuditChain{State: "off", CheckedAt: time.Now().UTC()}}
	if h.archive == nil {
		return http.StatusOK, answer, nil
	}
	found, err := h.archive.Search(ctx, q)
	if err != nil {
		return 0, client.AdminAudit{}, unreadable(ctx, err)
	}
	for _, line := range found.Lines {
		answer.Data = append(answer.Data, client.JSONObject(line))
	}
	answer.Next = found.Next
	chain, err := h.archive.Check(ctx)
	if err != nil {
		return 0, client.AdminAudit{}, unreadable(ctx, err)
	}
	answer.Chain = client.AdminAuditChain{State: string(chain.State), Lines: chain.Lines, CheckedAt: chain.Checked.UTC(), Detail: chain.Detail}
	return http.StatusOK, answer, nil
}

// unreadable words what the system says of the files, unless it is more than that.
func unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil || sdk.CodeOf(err) != sdk.CodeInternal {
		return err
	}
	return sdk.Errorf(sdk.CodeUnavailable, "the audit log cannot be read: %w", err)
}

// timeIn reads a time of the query; the zero time if it is not given.
func timeIn(c rest.Call[rest.None], name string) (time.Time, error) {
	if !c.Query.Given(name) {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, c.Query.Text(name))
	if err != nil {
		return t, sdk.FieldErrorf(sdk.CodeInvalidRequest, name, "must be a time as in RFC 3339, such as 2026-11-27T06:00:00Z")
	}
	return t, nil
}
