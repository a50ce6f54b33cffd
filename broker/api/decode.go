package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
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

// decode reads body into the value that into points to.
func (d *decoder) decode(contentType, contentEncoding string, body []byte, into any) error {
	if len(body) == 0 && contentType == "" && !d.bodyRequired() {
		body, contentType = []byte("{}"), "application/json"
	}
	if err := checkContentType(contentType, contentEncoding); err != nil {
		return err
	}
	if err := checkSyntax(body); err != nil {
		return err
	}
	check := &bodyCheck{decoder: d, tokens: json.NewDecoder(bytes.NewReader(body))}
	check.tokens.UseNumber()
	check.value(check.next(), "body", "", d.schema)
	if len(check.errors) > 0 {
		return fieldsError(check.errors)
	}
	if err := json.Unmarshal(body, into); err != nil {
		// The schema should have caught it; the error may hold a value.
		return &requestError{status: http.StatusUnprocessableEntity, detail: "The body does not fit the schema of this request."}
	}
	return nil
}

func checkContentType(contentType, contentEncoding string) error {
	if contentEncoding != "" && contentEncoding != "identity" {
		return &requestError{status: http.StatusUnsupportedMediaType, detail: "The body must not be compressed."}
	}
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" {
		return &requestError{status: http.StatusUnsupportedMediaType, detail: "The Content-Type must be application/json."}
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &requestError{status: http.StatusUnsupportedMediaType, detail: "The charset must be utf-8."}
	}
	return nil
}

func checkSyntax(body []byte) error {
	bad := func(format string, args ...any) error {
		detail := fmt.Sprintf(format, args...)
		return &requestError{status: http.StatusBadRequest, detail: detail, fields: []FieldError{{Field: "body", Detail: detail}}}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return bad("The body is empty; it must be a JSON object.")
	}
	if !utf8.Valid(body) {
		return bad("The body is not UTF-8.")
	}
	if json.Valid(body) {
		return nil
	}
	err := json.Unmarshal(body, new(json.RawMessage))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return bad("The body is not JSON: %s at byte %d.", syntax.Error(), syntax.Offset)
	}
	return bad("The body is not JSON.")
}

// bodyCheck walks over one body, which is known to be JSON. It ends early when
// it has seen enough mistakes: a body may hold a million of them.
type bodyCheck struct {
	*decoder
	tokens *json.Decoder
	ended  bool
	errors []FieldError
}

func (c *bodyCheck) fail(path, format string, args ...any) {
	c.errors = append(c.errors, FieldError{Field: path, Detail: fmt.Sprintf(format, args...)})
	c.ended = c.ended || len(c.errors) == maxFieldErrors
}

// next reads one token. The syntax is known to be right, so the end of the body
// cannot come where a token is due.
func (c *bodyCheck) next() json.Token {
	token, err := c.tokens.Token()
	if err != nil {
		c.ended = true
		return nil
	}
	return token
}

// value checks the value that begins with token and reads the rest of it. The
// path of the body itself is empty; name is what it is called in an error.
func (c *bodyCheck) value(token json.Token, name, path string, s *huma.Schema) {
	s = c.resolve(s)
	kind := kindOf(token)
	wanted := s.Type
	if wanted == huma.TypeInteger {
		wanted = huma.TypeNumber // whether it is whole, number looks
	}
	if wanted != "" && kind != wanted {
		c.fail(name, "must be %s, not %s", article(s.Type), article(kind))
		c.skip(token)
		return
	}
	switch token := token.(type) {
	case json.Delim:
		values, typed := s.AdditionalProperties.(*huma.Schema)
		if token == '{' && (typed || s.AdditionalProperties == false) {
			c.object(name, path, s, values)
			return
		}
		if token == '[' && s.Items != nil {
			c.array(name, path, s)
			return
		}
		c.skip(token)
	case string:
		c.text(name, s, token)
	case json.Number:
		c.number(name, s, token)
	}
}

// object reads the rest of an object whose fields are declared, or whose values
// are.
func (c *bodyCheck) object(called, path string, s, values *huma.Schema) {
	given := map[string]bool{}
	for !c.ended && c.tokens.More() {
		if s.MaxProperties != nil && len(given) == *s.MaxProperties {
			c.fail(called, "must have at most %d fields", *s.MaxProperties)
			c.ended = true
			return
		}
		name, _ := c.next().(string)
		child := shorten(name)
		if path != "" {
			child = path + "." + child
		}
		if given[name] {
			c.fail(child, "is given twice")
		}
		given[name] = true
		field, known := s.Properties[name]
		token := c.next()
		switch {
		case known && token == nil:
			delete(given, name) // null is the same as absent
		case known:
			c.value(token, child, child, field)
		case values != nil:
			c.value(token, child, child, values)
		default:
			c.fail(child, "is not a field of this request; there are: %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
			c.skip(token)
		}
	}
	if c.ended {
		return
	}
	c.next() // the closing brace
	for _, name := range s.Required {
		if !given[name] {
			c.fail(strings.TrimPrefix(path+"."+name, "."), "is required: %s", article(c.resolve(s.Properties[name]).Type))
		}
	}
}

// array reads the rest of an array.
func (c *bodyCheck) array(called, path string, s *huma.Schema) {
	count := 0
	for ; !c.ended && c.tokens.More(); count++ {
		if s.MaxItems != nil && count == *s.MaxItems {
			c.fail(called, "must have at most %d items", *s.MaxItems)
			c.ended = true
			return
		}
		item := fmt.Sprintf("%s[%d]", path, count)
		c.value(c.next(), item, item, s.Items)
	}
	if c.ended {
		return
	}
	c.next() // the closing bracket
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
	}
}

func (c *bodyCheck) number(name string, s *huma.Schema, literal json.Number) {
	value, err := strconv.ParseFloat(string(literal), 64)
	_, notWhole := strconv.ParseInt(string(literal), 10, 64)
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

// skip reads the rest of a value whose first token was read.
func (c *bodyCheck) skip(first json.Token) {
	depth := 0
	for token := first; ; {
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 || c.ended {
			return
		}
		token = c.next()
	}
}

func kindOf(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return huma.TypeObject
		}
		return huma.TypeArray
	case string:
		return huma.TypeString
	case bool:
		return huma.TypeBoolean
	case json.Number:
		return huma.TypeNumber
	default:
		return "null"
	}
}

func article(kind string) string {
	switch kind {
	case huma.TypeObject, huma.TypeArray, huma.TypeInteger:
		return "an " + kind
	case "null":
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
