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
	check := &bodyCheck{decoder: d}
	check.value(body, "body", "", d.schema)
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

// bodyCheck walks over one body, which is known to be JSON. What the schema says
// nothing about is passed over as a whole. It ends early when it has seen enough
// mistakes: a body may hold a million of them.
type bodyCheck struct {
	*decoder
	ended  bool
	errors []FieldError
}

func (c *bodyCheck) fail(path, format string, args ...any) {
	c.errors = append(c.errors, FieldError{Field: path, Detail: fmt.Sprintf(format, args...)})
	c.ended = c.ended || len(c.errors) == maxFieldErrors
}

// next reads what comes next. The syntax is known to be right, so the end of the body
// cannot come where something is due.
func (c *bodyCheck) next(tokens *json.Decoder, into any) {
	if err := tokens.Decode(into); err != nil {
		c.ended = true
	}
}

// value checks a value. The path of the body itself is empty; name is what it is
// called in an error.
func (c *bodyCheck) value(raw json.RawMessage, name, path string, s *huma.Schema) {
	s = c.resolve(s)
	kind := kindOf(raw)
	wanted := s.Type
	if wanted == huma.TypeInteger {
		wanted = huma.TypeNumber // whether it is whole, number looks
	}
	if wanted != "" && kind != wanted {
		c.fail(name, "must be %s, not %s", article(s.Type), article(kind))
		return
	}
	switch kind {
	case huma.TypeObject:
		if values, typed := s.AdditionalProperties.(*huma.Schema); typed || s.AdditionalProperties == false {
			c.object(raw, name, path, s, values)
		}
	case huma.TypeArray:
		if s.Items != nil {
			c.array(raw, name, path, s)
		}
	case huma.TypeString:
		var text string
		_ = json.Unmarshal(raw, &text) // it is a string
		c.text(name, s, text)
	case huma.TypeNumber:
		c.number(name, s, string(raw))
	}
}

// object checks an object whose fields are declared, or whose values are.
func (c *bodyCheck) object(raw json.RawMessage, called, path string, s, values *huma.Schema) {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	_, _ = tokens.Token() // the opening brace
	given := map[string]bool{}
	for !c.ended && tokens.More() {
		if s.MaxProperties != nil && len(given) == *s.MaxProperties {
			c.fail(called, "must have at most %d fields", *s.MaxProperties)
			c.ended = true
			return
		}
		key, _ := tokens.Token()
		name, _ := key.(string)
		child := shorten(name)
		if path != "" {
			child = path + "." + child
		}
		if given[name] {
			c.fail(child, "is given twice")
		}
		given[name] = true
		field, known := s.Properties[name]
		var value json.RawMessage
		c.next(tokens, &value)
		switch {
		case known && kindOf(value) == kindNull:
			delete(given, name) // null is the same as absent
		case known:
			c.value(value, child, child, field)
		case values != nil:
			c.value(value, child, child, values)
		default:
			c.fail(child, "is not a field of this request; there are: %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
		}
	}
	if c.ended {
		return
	}
	for _, name := range s.Required {
		if !given[name] {
			c.fail(strings.TrimPrefix(path+"."+name, "."), "is required: %s", article(c.resolve(s.Properties[name]).Type))
		}
	}
}

// array checks an array.
func (c *bodyCheck) array(raw json.RawMessage, called, path string, s *huma.Schema) {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	_, _ = tokens.Token() // the opening bracket
	count := 0
	for ; !c.ended && tokens.More(); count++ {
		if s.MaxItems != nil && count == *s.MaxItems {
			c.fail(called, "must have at most %d items", *s.MaxItems)
			c.ended = true
			return
		}
		item := fmt.Sprintf("%s[%d]", path, count)
		var value json.RawMessage
		c.next(tokens, &value)
		c.value(value, item, item, s.Items)
	}
	if !c.ended && s.MinItems != nil && count < *s.MinItems {
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
func kindOf(raw json.RawMessage) string {
	switch raw = bytes.TrimLeft(raw, " \t\r\n"); raw[0] {
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
