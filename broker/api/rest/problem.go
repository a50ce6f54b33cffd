package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// ProblemType is the media type of problems as RFC 9457 wants them.
const ProblemType = "application/problem+json"

// statusClientGone is only ever seen in the log.
const statusClientGone = 499

// Problem is an answer to a request that was refused or has failed, in the form of its
// API.
type Problem struct {
	Code      sdk.Code
	Status    int
	Headers   map[string]string
	MediaType string
	// Body becomes JSON.
	Body any
	// Begun says that the request has had effects: with an Idempotency-Key, this is
	// the answer for good.
	Begun bool
}

// Refusal is what an error means to a client. It is also the problem of an API that has
// none of its own.
type Refusal struct {
	_          struct{}     `additionalProperties:"true"`
	Type       string       `json:"type" doc:"A URN that holds the code." example:"urn:sandbox-broker:SB010"`
	Title      string       `json:"title" doc:"The code's meaning."`
	Status     int          `json:"status"`
	Detail     string       `json:"detail,omitempty" doc:"What went wrong this time."`
	Code       sdk.Code     `json:"code" example:"SB010"`
	Retryable  bool         `json:"retryable" doc:"Whether the same request may succeed later."`
	RequestID  string       `json:"request_id"`
	Field      string       `json:"field,omitempty" doc:"The field of the request that is at fault: the first of errors."`
	Errors     []FieldError `json:"errors,omitempty" nullable:"false" doc:"All fields at fault."`
	Capability string       `json:"capability,omitempty" doc:"What the provider lacks."`

	Headers map[string]string `json:"-"`
	// Begun is as in Problem: an error says so that has a method HasBegun.
	Begun bool `json:"-"`
}

// begun is an error of what may have had effects.
type begun interface {
	error
	HasBegun() bool
}

// FieldError says what is wrong with one field.
type FieldError struct {
	_      struct{} `additionalProperties:"true"`
	Field  string   `json:"field" example:"timeout"`
	Detail string   `json:"detail" example:"must be a number"`
}

// Error is a refusal whose status is not the one that its code usually has.
type Error struct {
	Code    sdk.Code
	Status  int
	Detail  string
	Fields  []FieldError
	Headers map[string]string
}

func (e *Error) Error() string {
	if len(e.Fields) > 0 && e.Code == sdk.CodeConflict {
		return e.Fields[0].Field + ": " + e.Fields[0].Detail
	}
	return e.Detail
}

// BadRequest is an SB010 with a status of its own.
func BadRequest(status int, detail string) *Error {
	return &Error{Code: sdk.CodeInvalidRequest, Status: status, Detail: detail}
}

func fieldsError(fields []FieldError) error {
	var texts []string
	for _, f := range fields {
		texts = append(texts, f.Field+": "+f.Detail)
	}
	e := BadRequest(http.StatusUnprocessableEntity, strings.Join(texts, "; "))
	e.Fields = fields
	return e
}

// RefusalOf turns any error into a refusal. What is not known to be fit for the caller
// stays out of it.
func RefusalOf(err error, requestID string) Refusal {
	r := Refusal{RequestID: requestID, Code: sdk.CodeInternal, Headers: map[string]string{}}
	if e, ok := errors.AsType[*Error](err); ok {
		r.Code, r.Status, r.Detail, r.Errors = e.Code, e.Status, e.Error(), e.Fields
		for name, value := range e.Headers {
			r.Headers[name] = value
		}
	} else if e, ok := errors.AsType[*fiber.Error](err); ok {
		r.Code, r.Status, r.Detail = frameworkError(e)
	} else if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code.Known() && e.Code.Info().HTTPStatus >= 400 {
		r.Code, r.Status, r.Detail = e.Code, e.Code.Info().HTTPStatus, e.Message
		r.Capability = string(e.Capability)
		if e.Field != "" {
			r.Errors = []FieldError{{Field: e.Field, Detail: e.Message}}
		}
		if e.Code == sdk.CodeInvalidRequest && e.Field != "" {
			r.Status = http.StatusUnprocessableEntity
			r.Detail = e.Field + ": " + e.Message
		}
		if e.RetryAfter > 0 {
			r.Headers[fiber.HeaderRetryAfter] = strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds())))
		}
	}
	if e, ok := errors.AsType[begun](err); ok {
		r.Begun = e.HasBegun()
	}
	if r.Code == sdk.CodeInternal {
		r.Status, r.Errors = http.StatusInternalServerError, nil
		r.Detail = "Something went wrong that should not have; the broker's log has more under this request_id."
	}
	if r.Code == sdk.CodeNotAuthenticated {
		r.Headers[fiber.HeaderWWWAuthenticate] = `Bearer realm="sandbox-broker"`
	}
	if len(r.Errors) > 0 {
		r.Field = r.Errors[0].Field
	}
	info := r.Code.Info()
	r.Title, r.Retryable = info.Title, info.Retryable || r.Headers[fiber.HeaderRetryAfter] != ""
	r.Type = "urn:sandbox-broker:" + string(r.Code)
	return r
}

// As is the refusal with another body than itself.
func (r Refusal) As(mediaType string, body any) Problem {
	return Problem{Code: r.Code, Status: r.Status, Headers: r.Headers, MediaType: mediaType, Body: body, Begun: r.Begun}
}

func plainProblem(err error, requestID string) Problem {
	r := RefusalOf(err, requestID)
	return r.As(ProblemType, r)
}

// frameworkError puts what Fiber and fasthttp object to into our words: theirs
// repeat bytes of the request.
func frameworkError(e *fiber.Error) (sdk.Code, int, string) {
	switch e.Code {
	case http.StatusNotFound:
		return sdk.CodeNotFound, e.Code, "There is no such route."
	case http.StatusMethodNotAllowed:
		return sdk.CodeInvalidRequest, e.Code, "This route does not take that method; the header Allow lists those that it takes."
	case http.StatusRequestEntityTooLarge:
		return sdk.CodeInvalidRequest, e.Code, "The body of the request is larger than the operator allows."
	case http.StatusRequestHeaderFieldsTooLarge:
		return sdk.CodeInvalidRequest, e.Code, "The headers of the request are too large."
	case http.StatusRequestTimeout:
		return sdk.CodeInvalidRequest, e.Code, "The request did not arrive in time."
	case http.StatusBadRequest, http.StatusBadGateway: // the latter: the client's connection broke
		return sdk.CodeInvalidRequest, http.StatusBadRequest, "The request is not valid HTTP."
	default:
		return sdk.CodeInternal, http.StatusInternalServerError, ""
	}
}

// answerError writes err as a problem and returns its code for the log.
func answerError(c *fiber.Ctx, x *exchange, err error) sdk.Code {
	if errors.Is(err, context.Canceled) && sdk.CodeOf(err) == sdk.CodeInternal {
		c.Status(statusClientGone) // nobody reads it
		return ""
	}
	if e, ok := errors.AsType[*fiber.Error](err); ok && e.Code == http.StatusMethodNotAllowed && c.Method() == http.MethodOptions {
		c.Status(http.StatusNoContent) // Fiber has set Allow
		return ""
	}
	p, body := x.problem(err)
	for name, value := range p.Headers {
		c.Set(name, value)
	}
	c.Set(fiber.HeaderContentType, p.MediaType)
	c.Status(p.Status)
	c.Response().SetBodyRaw(body)
	return p.Code
}

// writeProblem does the same for a stream that has not begun.
func writeProblem(w http.ResponseWriter, x *exchange, err error) sdk.Code {
	p, body := x.problem(err)
	clear(w.Header()) // of what the handler was about to say
	w.Header().Set(HeaderRequestID, x.requestID)
	for name, value := range p.Headers {
		w.Header().Set(name, value)
	}
	w.Header().Set(fiber.HeaderContentType, p.MediaType)
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone
	return p.Code
}

// problem is what the API of the request makes of an error.
func (x *exchange) problem(err error) (Problem, []byte) {
	p := x.api.opts.Problem(err, x.requestID)
	body, encodeErr := encode(p.Body)
	if encodeErr != nil {
		body = fmt.Appendf(nil, `{"code":%q,"status":500}`, sdk.CodeInternal)
	}
	return p, body
}

// Encoder is an answer that writes itself as JSON.
type Encoder interface{ EncodeJSON() ([]byte, error) }

// Encode writes an answer, or the data of an event.
func Encode(v any) ([]byte, error) { return encode(v) }

func encode(v any) ([]byte, error) {
	if own, ok := v.(Encoder); ok {
		return own.EncodeJSON()
	}
	return EncodeJSON(v)
}

// EncodeJSON returns v as JSON on one line, without escapes that only HTML needs.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
