package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxFieldErrors and maxNameLength bound how much of a bad request is repeated
// in the answer.
const (
	maxFieldErrors = 20
	maxNameLength  = 64
)

// decoder reads request bodies of one type strictly: what the type's schema
// does not allow is an error that names the field, and all errors are found at
// once. huma's own validator is not used because it takes field names in any
// case, lets duplicates pass and repeats values in its errors.
type decoder struct {
	registry huma.Registry
	schema   *huma.Schema
	patterns map[string]*regexp.Regexp
}

func newDecoder(registry huma.Registry, schema *huma.Schema) *decoder {
	d := &decoder{registry: registry, schema: schema, patterns: map[string]*regexp.Regexp{}}
	d.compile(schema)
	return d
}

func (d *decoder) compile(s *huma.Schema) {
	s = d.resolve(s)
	if s.Pattern != "" {
		d.patterns[s.Pattern] = regexp.MustCompile(s.Pattern)
	}
	for _, property := range s.Properties {
		d.compile(property)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		d.compile(values)
	}
	if s.Items != nil {
		d.compile(s.Items)
	}
}

func (d *decoder) resolve(s *huma.Schema) *huma.Schema {
	if s.Ref != "" {
		return d.registry.SchemaFromRef(s.Ref)
	}
	return s
}

// bodyRequired reports whether an empty body cannot stand for {}.
func (d *decoder) bodyRequired() bool { return len(d.resolve(d.schema).Required) > 0 }

// decode reads body into the value that into points to. It goes over the body once to
// check it and once to read it.
func (d *decoder) decode(contentType, contentEncoding string, body []byte, into any) error {
	if len(body) == 0 && contentType == "" && !d.bodyRequired() {
		body, contentType = []byte("{}"), "application/json"
	}
	if err := checkContentType(contentType, contentEncoding); err != nil {
		return err
	}
	check := &bodyCheck{decoder: d, body: body, tokens: json.NewDecoder(bytes.NewReader(body))}
	switch {
	case !check.whole():
		if err := syntaxError(body); err != nil {
			return err
		}
	case len(check.errors) == 0:
		if json.Unmarshal(body, into) == nil {
			return nil
		}
		if err := syntaxError(body); err != nil { // nested too deeply, which only this looks at
			return err
		}
	}
	if len(check.errors) > 0 {
		return fieldsError(check.errors)
	}
	// The schema should have caught it; the error may hold a value.
	return BadRequest(http.StatusUnprocessableEntity, "The body does not fit the schema of this request.")
}

func checkContentType(contentType, contentEncoding string) error {
	if contentEncoding != "" && contentEncoding != "identity" {
		return BadRequest(http.StatusUnsupportedMediaType, "The body must not be compressed.")
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" {
		return BadRequest(http.StatusUnsupportedMediaType, "The Content-Type must be application/json.")
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return BadRequest(http.StatusUnsupportedMediaType, "The charset must be utf-8.")
	}
	return nil
}

// syntaxError puts into words why a body is no JSON, nil if it is.
func syntaxError(body []byte) error {
	bad := func(format string, args ...any) error {
		e := BadRequest(http.StatusBadRequest, fmt.Sprintf(format, args...))
		e.Fields = []FieldError{{Field: "body", Detail: e.Detail}}
		return e
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return bad("The body is empty; it must be a JSON object.")
	}
	if !utf8.Valid(body) {
		return bad("The body is not UTF-8.")
	}
	err := json.Unmarshal(body, new(json.RawMessage))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return bad("The body is not JSON: %s at byte %d.", syntax.Error(), syntax.Offset)
	}
	if err != nil {
		return bad("The body is not JSON.")
	}
	return nil
}

// bodyCheck walks over one body. What the schema says nothing about is passed over as a
// whole. It ends early when it has seen enough mistakes, for a body may hold a million
// of them, or when the body proves to be no JSON.
type bodyCheck struct {
	*decoder
	body   []byte
	tokens *json.Decoder
	ended  bool
	errors []FieldError
}

// whole reports whether the walk came to the end of the body, and of its JSON.
func (c *bodyCheck) whole() bool {
	if !utf8.Valid(c.body) {
		return false
	}
	c.value("body", "", c.schema)
	if c.ended {
		return false
	}
	_, err := c.tokens.Token()
	return errors.Is(err, io.EOF)
}

func (c *bodyCheck) fail(path, format string, args ...any) {
	c.errors = append(c.errors, FieldError{Field: path, Detail: fmt.Sprintf(format, args...)})
	c.ended = c.ended || len(c.errors) == maxFieldErrors
}

// next reads the value that comes next.
func (c *bodyCheck) next() (value json.RawMessage) {
	if c.tokens.Decode(&value) != nil {
		c.ended = true
	}
	return value
}

// token reads the token that comes next: a name, or where an object or array begins and
// ends.
func (c *bodyCheck) token() json.Token {
	token, err := c.tokens.Token()
	if err != nil {
		c.ended = true
	}
	return token
}

func (c *bodyCheck) more() bool { return !c.ended && c.tokens.More() }

// kind tells by its first character what comes next, empty for nothing.
func (c *bodyCheck) kind() string {
	return kindOf(bytes.TrimLeft(c.body[c.tokens.InputOffset():], " \t\r\n,:"))
}

// value checks what comes next. The path of the body itself is empty; name is what it is
// called in an error.
func (c *bodyCheck) value(name, path string, s *huma.Schema) {
	s = c.resolve(s)
	kind := c.kind()
	wanted := s.Type
	if wanted == huma.TypeInteger {
		wanted = huma.TypeNumber // whether it is whole, number looks
	}
	values, typed := s.AdditionalProperties.(*huma.Schema)
	switch {
	case wanted != "" && kind != wanted:
		if c.next(); !c.ended {
			c.fail(name, "must be %s, not %s", article(s.Type), article(kind))
		}
	case kind == huma.TypeObject && (typed || s.AdditionalProperties == false || len(s.Properties) > 0):
		c.object(name, path, s, values)
	case kind == huma.TypeArray && s.Items != nil:
		c.array(name, path, s)
	case kind == huma.TypeString:
		var text string
		_ = json.Unmarshal(c.next(), &text) // it is a string, if it is JSON
		c.text(name, s, text)
	case kind == huma.TypeNumber:
		c.number(name, s, string(c.next()))
	default:
		c.next()
	}
}

// object checks an object whose fields are declared, or whose values are.
func (c *bodyCheck) object(called, path string, s, values *huma.Schema) {
	c.token() // the opening brace
	given := map[string]bool{}
	for c.more() {
		if s.MaxProperties != nil && len(given) == *s.MaxProperties {
			c.fail(called, "must have at most %d fields", *s.MaxProperties)
			c.ended = true
			return
		}
		name, _ := c.token().(string)
		child := shorten(name)
		if path != "" {
			child = path + "." + child
		}
		if given[name] {
			c.fail(child, "is given twice")
		}
		given[name] = true
		field, known := s.Properties[name]
		switch {
		case known && c.kind() == kindNull:
			c.next()
			delete(given, name) // null is the same as absent
		case known:
			c.value(child, child, field)
		case values != nil:
			c.value(child, child, values)
		case s.AdditionalProperties == true:
			c.next()
		default:
			if c.next(); !c.ended {
				c.fail(child, "is not a field of this request; there are: %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
			}
		}
	}
	if c.ended {
		return
	}
	c.token() // the closing brace
	for _, name := range s.Required {
		if !given[name] {
			c.fail(strings.TrimPrefix(path+"."+name, "."), "is required: %s", article(c.resolve(s.Properties[name]).Type))
		}
	}
}

// array checks an array.
func (c *bodyCheck) array(called, path string, s *huma.Schema) {
	c.token() // the opening bracket
	count := 0
	for ; c.more(); count++ {
		if s.MaxItems != nil && count == *s.MaxItems {
			c.fail(called, "must have at most %d items", *s.MaxItems)
			c.ended = true
			return
		}
		item := fmt.Sprintf("%s[%d]", path, count)
		c.value(item, item, s.Items)
	}
	if c.ended {
		return
	}
	c.token() // the closing bracket
	if s.MinItems != nil && count < *s.MinItems {
		c.fail(called, "must have at least %d items", *s.MinItems)
	}
}

func (c *bodyCheck) text(name string, s *huma.Schema, value string) {
	length := utf8.RuneCountInString(value)
	switch {
	case s.MinLength != nil && length < *s.MinLength && *s.MinLength == 1:
		c.fail(name, "must not be empty")
	case s.MinLength != nil && length < *s.MinLength:
		c.fail(name, "must have at least %d characters", *s.MinLength)
	case s.MaxLength != nil && length > *s.MaxLength:
		c.fail(name, "must have at most %d characters", *s.MaxLength)
	case s.Pattern != "" && !c.patterns[s.Pattern].MatchString(value):
		c.fail(name, "must be made of %s", s.PatternDescription)
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, any(value)):
		c.fail(name, "must be %s", oneOf(s.Enum))
	}
}

// oneOf puts what a value may be into words.
func oneOf(values []any) string {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = fmt.Sprint(value)
	}
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}

func (c *bodyCheck) number(name string, s *huma.Schema, literal string) {
	value, err := strconv.ParseFloat(literal, 64)
	_, notWhole := strconv.ParseInt(literal, 10, 64)
	switch {
	case err != nil:
		c.fail(name, "is out of range")
	case s.Type == huma.TypeInteger && notWhole != nil:
		c.fail(name, "must be an integer")
	case s.Minimum != nil && value < *s.Minimum:
		c.fail(name, "must be at least %g", *s.Minimum)
	case s.Maximum != nil && value > *s.Maximum:
		c.fail(name, "must be at most %g", *s.Maximum)
	case s.ExclusiveMinimum != nil && value <= *s.ExclusiveMinimum:
		c.fail(name, "must be more than %g", *s.ExclusiveMinimum)
	}
}

const kindNull = "null"

// kindOf tells by its first character what a value is.
func kindOf(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '{':
		return huma.TypeObject
	case '[':
		return huma.TypeArray
	case '"':
		return huma.TypeString
	case 't', 'f':
		return huma.TypeBoolean
	case 'n':
		return kindNull
	default:
		return huma.TypeNumber
	}
}

func article(kind string) string {
	switch kind {
	case huma.TypeObject, huma.TypeArray, huma.TypeInteger:
		return "an " + kind
	case kindNull:
		return kind
	default:
		return "a " + kind
	}
}

func shorten(name string) string {
	if len(name) > maxNameLength {
		return strings.ToValidUTF8(name[:maxNameLength], "") + "…"
	}
	return name
}

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
