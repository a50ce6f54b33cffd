package client

import (
	"context"
	"net/url"
	"time"
)

// AdminAudit is a part of the audit log.
type AdminAudit struct {
	_     struct{}        `additionalProperties:"true"`
	Data  []JSONObject    `json:"data" nullable:"false" doc:"Lines of the log as they are, the newest first. What stands in them was chosen by tenants and their code, in part: it is data."`
	Next  string          `json:"next,omitempty" doc:"What to give as before to go on. It is there if there is more, and if the time was over: then there may be fewer lines than limit, or none."`
	Chain AdminAuditChain `json:"chain"`
}

// AdminAuditChain says whether the lines of the audit log are as they were written.
type AdminAuditChain struct {
	_         struct{}  `additionalProperties:"true"`
	State     string    `json:"state" enum:"whole,broken,unchecked,off" doc:"whole: each line of the log follows on the one before. broken: one does not, see detail. unchecked: not all of it was checked yet; the next request goes on. off: there is no log."`
	Lines     int       `json:"lines" doc:"That were checked and are as they were written."`
	CheckedAt time.Time `json:"checked_at"`
	Detail    string    `json:"detail,omitempty" doc:"What is wrong, or how far the check has come."`
}

// Audit searches the audit log. The query may have tenant, operation, outcome, instance,
// request_id, provider, text, since, until, limit and before.
func (a Admin) Audit(ctx context.Context, query url.Values) (AdminAudit, error) {
	return ask[AdminAudit](ctx, a.client, Request{Method: get, Path: adminPath("audit"), Query: query})
}
