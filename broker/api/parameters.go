package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// parameter is something that an operation takes in its query. What it does not
// declare is refused.
type parameter struct {
	name string
	doc  string
	kind parameterKind
	// required parameters must be given, multiple ones may be so several times.
	required, multiple bool
	// least and most bound a number; most 0 is no bound.
	least, most float64
}

type parameterKind int

const (
	textParameter parameterKind = iota // not empty, at most maxParameter bytes
	integerParameter
	numberParameter
	booleanParameter // true or false; the bare name counts as true
)

// maxParameter is the longest text in a query, in bytes: a path's longest.
const maxParameter = 4096

// describe is the parameter in the OpenAPI document.
func (p parameter) describe() *huma.Param {
	schema := &huma.Schema{}
	switch p.kind {
	case textParameter:
		least, most := 1, maxParameter
		schema.Type, schema.MinLength, schema.MaxLength = huma.TypeString, &least, &most
	case integerParameter, numberParameter:
		schema.Type, schema.Minimum = huma.TypeInteger, &p.least
		if p.kind == numberParameter {
			schema.Type = huma.TypeNumber
		}
		if p.most != 0 {
			schema.Maximum = &p.most
		}
	case booleanParameter:
		schema.Type = huma.TypeBoolean
	}
	if p.multiple {
		schema = &huma.Schema{Type: huma.TypeArray, Items: schema}
	}
	return &huma.Param{Name: p.name, In: "query", Description: p.doc, Required: p.required, Schema: schema}
}

// check says what is wrong with a value.
func (p parameter) check(value string) error {
	switch p.kind {
	case textParameter:
		if value == "" || len(value) > maxParameter {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.name, "must have 1 to %d bytes", maxParameter)
		}
		if !utf8.ValidString(value) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.name, "must be UTF-8")
		}
	case integerParameter, numberParameter:
		n, err := strconv.ParseFloat(value, 64)
		if p.kind == integerParameter {
			var whole int64
			whole, err = strconv.ParseInt(value, 10, 64)
			n = float64(whole)
		}
		if err != nil || !(n >= p.least) || p.most != 0 && !(n <= p.most) { // NaN is neither
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.name, "must be a number of the kind and size that the API document says, not %.40q", value)
		}
	case booleanParameter:
		if value != "" && value != "true" && value != "false" {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.name, "must be true or false, not %.40q", value)
		}
	}
	return nil
}

// query holds the parameters of a request, checked.
type query map[string][]string

// parseQuery reads a query that may hold the given parameters.
func parseQuery(raw string, parameters []parameter) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInvalidRequest, "the query of the URL is malformed")
	}
	for name, given := range values {
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.name == name })
		switch {
		case i < 0:
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, clipped(name), "is no parameter of this operation; there are: %s", parameterNames(parameters))
		case len(given) > 1 && !parameters[i].multiple:
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, name, "may be given once only")
		}
		for _, value := range given {
			if err := parameters[i].check(value); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range parameters {
		if p.required && len(values[p.name]) == 0 {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, p.name, "is required")
		}
	}
	return query(values), nil
}

func clipped(name string) string { return name[:min(len(name), 64)] }

func parameterNames(parameters []parameter) string {
	if len(parameters) == 0 {
		return "none"
	}
	var names []string
	for _, p := range parameters {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

func (q query) given(name string) bool { return len(q[name]) > 0 }

func (q query) all(name string) []string { return q[name] }

// text is "" for a parameter that was not given.
func (q query) text(name string) string {
	if len(q[name]) == 0 {
		return ""
	}
	return q[name][0]
}

func (q query) integer(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(q.text(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

func (q query) number(name string, otherwise float64) float64 {
	n, err := strconv.ParseFloat(q.text(name), 64)
	if err != nil {
		return otherwise
	}
	return n
}

func (q query) boolean(name string) bool {
	return q.given(name) && q.text(name) != "false"
}
