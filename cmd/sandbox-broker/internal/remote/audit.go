package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// AuditSearch searches the audit log of a broker.
type AuditSearch struct {
	Text      string `arg:"" optional:"" help:"A part of any text of a line, in whatever case."`
	Tenant    string `help:"Only what was done for this tenant." placeholder:"NAME" complete:"tenants"`
	Operation string `help:"Only this operation, such as destroy_instance." placeholder:"NAME"`
	Outcome   string `help:"Only what ended with this status." placeholder:"STATUS"`
	Instance  string `help:"Only what was done to this instance." placeholder:"ID"`
	Request   string `help:"Only the lines of this request." placeholder:"ID"`
	Provider  string `help:"Only what was done on this provider." placeholder:"ID" complete:"providers"`
	Since     string `help:"Only lines from this time on, as in RFC 3339." placeholder:"TIME"`
	Until     string `help:"Only lines up to this time." placeholder:"TIME"`
	Limit     int    `default:"50" help:"At most so many lines; ${default} unless given."`
	Output
	Connection
}

// Help is shown below the usage.
func (*AuditSearch) Help() string {
	return `This takes an administrator's token. The newest lines come first. Whether the chain of the
log is whole is said on standard error; the exit code is 1 if it is broken.

Examples:
  sandbox-broker audit search --tenant acme --operation destroy_instance
  sandbox-broker audit search --since 2026-01-01T00:00:00Z -o json numpy`
}

// auditLine is what a table shows of a line of the log.
type auditLine struct {
	Seq       int64
	Timestamp string
	Event     string
	Operation string
	Note      string
	Cause     string
	Tenant    string `json:"tenant_id"`
	Instance  string `json:"instance_id"`
	Provider  string
	Status    string
	Code      string
	Request   string `json:"request_id"`
}

func auditLines() listing[auditLine] {
	return listing[auditLine]{
		columns: []table.Column[auditLine]{
			{Head: "TIME", Cell: func(l auditLine) string { return l.Timestamp }},
			{Head: "WHO", Cell: func(l auditLine) string {
				switch l.Cause {
				case "request":
					return l.Tenant
				case "admin":
					return "administrator"
				}
				return l.Cause
			}},
			{Head: "DID", Cell: func(l auditLine) string { return cmp.Or(l.Operation, l.Note) }},
			{Head: "EVENT", Cell: func(l auditLine) string { return l.Event }},
			{Head: "WITH", Cell: func(l auditLine) string { return cmp.Or(l.Instance, l.Provider) }},
			{Head: "STATUS", Cell: func(l auditLine) string { return l.Status }},
			{Head: "CODE", Cell: func(l auditLine) string { return l.Code }},
			{Head: "REQUEST", Wide: true, Cell: func(l auditLine) string { return l.Request }},
		},
		name: func(l auditLine) string { return strconv.FormatInt(l.Seq, 10) },
	}
}

// mostLines is how many lines one answer may have.
const mostLines = 500

// Run prints what was found.
func (c *AuditSearch) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	if c.Limit < 1 {
		return usageErrorf("--limit must be 1 or more")
	}
	query := url.Values{}
	for name, value := range map[string]string{
		"text": c.Text, "tenant": c.Tenant, "operation": c.Operation, "outcome": c.Outcome, "instance": c.Instance,
		"request_id": c.Request, "provider": c.Provider, "since": c.Since, "until": c.Until,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var found []client.JSONObject
	var chain client.AdminAuditChain
	for next := ""; ; {
		query.Set("limit", strconv.Itoa(min(c.Limit-len(found), mostLines)))
		if next != "" {
			query.Set("before", next)
		}
		page, err := broker.Admin().Audit(ctx, query)
		if err != nil {
			return err
		}
		found, chain, next = append(found, page.Data...), page.Chain, page.Next
		if next == "" || len(found) >= c.Limit {
			break
		}
	}
	if err := c.print(console, found); err != nil {
		return err
	}
	return verdict(console, chain)
}

func (c *AuditSearch) print(console *Console, found []client.JSONObject) error {
	lines := []auditLine{}
	for _, one := range found {
		var line auditLine
		if err := json.Unmarshal(one, &line); err != nil {
			return unreadable{fmt.Errorf("a line of the broker's answer cannot be read: %w", err)}
		}
		lines = append(lines, line)
	}
	answer, err := json.Marshal(map[string]any{"data": found})
	if err != nil {
		return err
	}
	return auditLines().print(console, c.Output.Output, lines, answer)
}

// verdict says whether the lines are as they were written.
func verdict(console *Console, chain client.AdminAuditChain) error {
	switch chain.State {
	case "broken":
		return fmt.Errorf("the chain of the audit log is broken: %s", chain.Detail)
	case "whole":
		_, err := fmt.Fprintf(console.Err, "The chain is whole: %d lines.\n", chain.Lines)
		return err
	default:
		_, err := fmt.Fprintf(console.Err, "The chain was not checked to its end: %s\n", table.Printable(chain.Detail))
		return err
	}
}
