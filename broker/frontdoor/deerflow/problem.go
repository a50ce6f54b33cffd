package deerflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// refusal is the form of every one. The all-in-one sandbox has the first three fields, and
// the provisioner, as all of FastAPI, the fourth: clients show them as they are, and read
// nothing but the detail of 422. No refusal has a status below 400: clients never look at
// success.
type refusal struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Data    any    `json:"data"`
	// Detail is the message, or what is wrong with the fields of a body.
	Detail    any      `json:"detail"`
	Code      sdk.Code `json:"code"`
	RequestID string   `json:"request_id"`
}

// problem puts refusals into that form.
func problem(err error, requestID string) rest.Problem {
	faults, wrong := errors.AsType[frontdoor.Faults](err)
	if wrong {
		err = rest.BadRequest(http.StatusUnprocessableEntity, faults.Error())
	}
	r := rest.RefusalOf(err, requestID)
	answer := refusal{Message: r.Detail, Detail: r.Detail, Code: r.Code, RequestID: requestID}
	switch {
	case wrong:
		answer.Detail = faults
		answer.Message = faultText(faults[0])
	case r.Status == http.StatusUnprocessableEntity:
		answer.Detail = frontdoor.FaultsOf(r)
	}
	return r.As("application/json", answer)
}

// faultText names the field too.
func faultText(f frontdoor.Fault) string {
	if field, ok := f.Loc[len(f.Loc)-1].(string); ok {
		return field + ": " + f.Msg
	}
	return f.Msg
}

// envelope is around what the all-in-one sandbox answers.
type envelope[T any] struct {
	Success bool    `json:"success"`
	Message string  `json:"message"`
	Data    T       `json:"data"`
	Hint    *string `json:"hint"`
}

func enveloped[T any](data T) envelope[T] {
	return envelope[T]{Success: true, Message: done, Data: data}
}

// done is what the all-in-one sandbox says of whatever has worked.
const done = "Operation successful"

// refused is a refusal of a field that is wrong, or would change what the client gets.
func refused(field, format string, args ...any) error {
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, format, args...)
}

// fields are those of a body that must be an object.
type fields map[string]json.RawMessage

// readFields finds what FastAPI finds wrong with a body as a whole.
func readFields(body []byte) (fields, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, frontdoor.Faults{{Type: "missing", Loc: []any{"body"}, Msg: "Field required"}}
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, errNoJSON
	}
	f := fields{}
	if err := json.Unmarshal(body, &f); err != nil || f == nil {
		return nil, errNoObject
	}
	return f, nil
}

var (
	errNoJSON   = frontdoor.Faults{{Type: "json_invalid", Loc: []any{"body", 0}, Msg: "JSON decode error"}}
	errNoObject = frontdoor.Faults{{Type: "model_attributes_type", Loc: []any{"body"}, Msg: "Input should be a valid dictionary or object to extract fields from"}}
)

// read reads fields one by one, so that each that is wrong is told by its name. What is
// null is as good as absent, and required are those that are never either.
func (f fields) read(into map[string]any, required ...string) error {
	var faults frontdoor.Faults
	for _, name := range required {
		if f.empty(name) {
			faults.Add("missing", name, "Field required")
		}
	}
	for _, name := range sortedKeys(into) {
		if f.empty(name) {
			continue
		}
		if err := json.Unmarshal(f[name], into[name]); err != nil {
			kind, text := wrongType(into[name])
			faults.Add(kind, name, text)
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

func (f fields) empty(name string) bool {
	raw := bytes.TrimSpace(f[name])
	return len(raw) == 0 || string(raw) == "null"
}

func wrongType(want any) (kind, text string) {
	switch want.(type) {
	case *string:
		return "string_type", "Input should be a valid string"
	case *bool:
		return "bool_type", "Input should be a valid boolean"
	case *float64:
		return "float_type", "Input should be a valid number"
	case *int64:
		return "int_type", "Input should be a valid integer"
	default:
		return "value_error", "Input is not of the type that the API has for it"
	}
}
