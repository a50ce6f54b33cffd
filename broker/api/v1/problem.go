package v1

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// problem is what this API answers to any error.
func problem(err error, requestID string) rest.Problem {
	r := rest.RefusalOf(err, requestID)
	p := client.Problem{}
	if fault, ok := errors.AsType[*instance.Fault](err); ok {
		p.Provider, p.InstanceID, p.Tried = fault.Provider, fault.InstanceID, triedOf(fault.Tried)
	}
	if wrong, ok := configurationProblem(err); ok {
		refused := rest.Error{Code: sdk.CodeInvalidConfig, Status: sdk.CodeInvalidConfig.Info().HTTPStatus, Detail: wrong.detail, Fields: wrong.fields}
		r = rest.RefusalOf(&refused, requestID)
		p.Diagnostics = wrong.diagnostics
	}
	if refusal, ok := errors.AsType[*quota.Refusal](err); ok {
		p.Quota = &client.QuotaRefusal{Limit: string(refusal.Limit), Value: refusal.Max, Used: refusal.Used}
	}
	if r.Code == sdk.CodeInternal && p.Provider != "" {
		r.Detail = fmt.Sprintf("The provider %q failed in a way that no provider should; the broker's log has more under this request_id.", p.Provider)
	}
	p.Type, p.Title, p.Status, p.Detail, p.Code = r.Type, r.Title, r.Status, r.Detail, string(r.Code)
	p.Retryable, p.RequestID, p.Field, p.Capability = r.Retryable, requestID, r.Field, r.Capability
	for _, f := range r.Errors {
		p.Errors = append(p.Errors, client.FieldError{Field: f.Field, Detail: f.Detail})
	}
	return r.As(rest.ProblemType, &p)
}

// wrongConfiguration is what a problem says of a configuration that is refused.
type wrongConfiguration struct {
	detail      string
	fields      []rest.FieldError
	diagnostics []client.AdminDiagnostic
}

// refusedSettings are mistakes in what a request made of the files, with the fields of
// the request that are to blame.
type refusedSettings struct {
	config.Diagnostics
	fields []rest.FieldError
}

// configurationProblem finds out whether an error is about a configuration.
func configurationProblem(err error) (wrongConfiguration, bool) {
	if fields, ok := errors.AsType[admin.FieldErrors](err); ok {
		var wrong wrongConfiguration
		var texts []string
		for _, f := range fields {
			wrong.fields = append(wrong.fields, rest.FieldError{Field: f.Field, Detail: f.Message})
			texts = append(texts, f.Error())
		}
		wrong.detail = strings.Join(texts, "; ")
		return wrong, true
	}
	if refused, ok := errors.AsType[refusedSettings](err); ok {
		return wrongConfiguration{detail: summaryOf(refused.Diagnostics), fields: refused.fields, diagnostics: diagnosticsOf(refused.Diagnostics)}, true
	}
	diags, ok := errors.AsType[config.Diagnostics](err)
	if !ok {
		return wrongConfiguration{}, false
	}
	return wrongConfiguration{detail: summaryOf(diags), diagnostics: diagnosticsOf(diags)}, true
}

// summaryOf tells the first mistake, and how many more there are.
func summaryOf(diags config.Diagnostics) string {
	text, more := "", 0
	for _, d := range diags {
		switch {
		case d.Severity != config.SeverityError:
		case text == "":
			text = fmt.Sprintf("%s: %s", d.Summary, d.Detail)
			if d.Within != "" {
				text = d.Within + ": " + text
			}
		default:
			more++
		}
	}
	if more > 0 {
		text += fmt.Sprintf(" (And %d more.)", more)
	}
	return text
}

// diagnosticsOf leaves the excerpts out: they are lines of files that may hold
// secrets.
func diagnosticsOf(diags config.Diagnostics) []client.AdminDiagnostic {
	list := []client.AdminDiagnostic{}
	for _, d := range diags {
		list = append(list, client.AdminDiagnostic{
			Severity: string(d.Severity), File: d.File,
			Line: d.Start.Line, Column: d.Start.Column, EndLine: d.End.Line, EndColumn: d.End.Column,
			Within: d.Within, Setting: d.Setting, Summary: d.Summary, Detail: d.Detail,
		})
	}
	return list
}
