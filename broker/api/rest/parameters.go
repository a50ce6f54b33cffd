package rest

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Parameter is something that an operation takes in its query. What it does not
// declare is refused.
type Parameter struct {
	Name string
	Doc  string
	Kind Kind
	// Required parameters must be given, Multiple ones may be so several times.
	Required, Multiple bool
	// Least and Most bound a number; Most 0 is no bound.
	Least, Most float64
}

// Kind of the values of a parameter.
type Kind int

const (
	Text Kind = iota // not empty, at most maxParameter bytes
	Integer
	Number
	Boolean // true or false; the bare name counts as true
)

// maxParameter is the longest text in a query, in bytes: a path's longest.
const maxParameter = 4096

// describe is the parameter in the OpenAPI document.
func (p Parameter) describe() *huma.Param {
	schema := &huma.Schema{}
	switch p.Kind {
	case Text:
		least, most := 1, maxParameter
		schema.Type, schema.MinLength, schema.MaxLength = huma.TypeString, &least, &most
	case Integer, Number:
		schema.Type, schema.Minimum = huma.TypeInteger, &p.Least
		if p.Kind == Number {
			schema.Type = huma.TypeNumber
		}
		if p.Most != 0 {
			schema.Maximum = &p.Most
		}
	case Boolean:
		schema.Type = huma.TypeBoolean
	}
	if p.Multiple {
		schema = &huma.Schema{Type: huma.TypeArray, Items: schema}
	}
	return &huma.Param{Name: p.Name, In: "query", Description: p.Doc, Required: p.Required, Schema: schema}
}

// check says what is wrong with a value.
func (p Parameter) check(value string) error {
	switch p.Kind {
	case Text:
		if value == "" || len(value) > maxParameter {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.Name, "must have 1 to %d bytes", maxParameter)
		}
		if !utf8.ValidString(value) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.Name, "must be UTF-8")
		}
	case Integer, Number:
		n, err := strconv.ParseFloat(value, 64)
		if p.Kind == Integer {
			var whole int64
			whole, err = strconv.ParseInt(value, 10, 64)
			n = float64(whole)
		}
		if err != nil || !(n >= p.Least) || p.Most != 0 && !(n <= p.Most) { // NaN is neither
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.Name, "must be a number of the kind and size that the API document says, not %.40q", value)
		}
	case Boolean:
		if value != "" && value != "true" && value != "false" {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, p.Name, "must be true or false, not %.40q", value)
		}
	}
	return nil
}

// Query holds the parameters of a request, checked.
type Query map[string][]string

// parseQuery reads a query that may hold the given parameters.
func parseQuery(raw string, parameters []Parameter) (Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInvalidRequest, "the query of the URL is malformed")
	}
	for name, given := range values {
		i := slices.IndexFunc(parameters, func(p Parameter) bool { return p.Name == name })
		switch {
		case i < 0:
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, clipped(name), "is no parameter of this operation; there are: %s", parameterNames(parameters))
		case len(given) > 1 && !parameters[i].Multiple:
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, name, "may be given once only")
		}
		for _, value := range given {
			if err := parameters[i].check(value); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range parameters {
		if p.Required && len(values[p.Name]) == 0 {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, p.Name, "is required")
		}
	}
	return Query(values), nil
}

func clipped(name string) string { return name[:min(len(name), 64)] }

func parameterNames(parameters []Parameter) string {
	if len(parameters) == 0 {
		return "none"
	}
	var names []string
	for _, p := range parameters {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func (q Query) Given(name string) bool { return len(q[name]) > 0 }

func (q Query) All(name string) []string { return q[name] }

// Text is "" for a parameter that was not given.
func (q Query) Text(name string) string {
	if len(q[name]) == 0 {
		return ""
	}
	return q[name][0]
}

func (q Query) Integer(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(q.Text(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

func (q Query) Number(name string, otherwise float64) float64 {
	n, err := strconv.ParseFloat(q.Text(name), 64)
	if err != nil {
		return otherwise
	}
	return n
}

func (q Query) Boolean(name string) bool {
	return q.Given(name) && q.Text(name) != "false"
}
