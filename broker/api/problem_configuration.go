package api

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// wrongConfiguration is what a problem says of a configuration that is refused.
type wrongConfiguration struct {
	detail      string
	fields      []FieldError
	diagnostics []AdminDiagnostic
}

// refusedSettings are mistakes in what a request made of the files, with the fields of
// the request that are to blame.
type refusedSettings struct {
	config.Diagnostics
	fields []FieldError
}

// configurationProblem finds out whether an error is about a configuration.
func configurationProblem(err error) (wrongConfiguration, bool) {
	if fields, ok := errors.AsType[admin.FieldErrors](err); ok {
		var wrong wrongConfiguration
		var texts []string
		for _, f := range fields {
			wrong.fields = append(wrong.fields, FieldError{Field: f.Field, Detail: f.Message})
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
func diagnosticsOf(diags config.Diagnostics) []AdminDiagnostic {
	list := []AdminDiagnostic{}
	for _, d := range diags {
		list = append(list, AdminDiagnostic{
			Severity: string(d.Severity), File: d.File,
			Line: d.Start.Line, Column: d.Start.Column, EndLine: d.End.Line, EndColumn: d.End.Column,
			Within: d.Within, Setting: d.Setting, Summary: d.Summary, Detail: d.Detail,
		})
	}
	return list
}
