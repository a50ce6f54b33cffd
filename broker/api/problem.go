package api

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

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Problem is an error as RFC 9457 wants it.
type Problem struct {
	_         struct{} `additionalProperties:"true"`
	Type      string   `json:"type" doc:"A URN that holds the code." example:"urn:sandbox-broker:SB010"`
	Title     string   `json:"title" doc:"The code's meaning."`
	Status    int      `json:"status"`
	Detail    string   `json:"detail,omitempty" doc:"What went wrong this time."`
	Code      string   `json:"code" example:"SB010"`
	Retryable bool     `json:"retryable" doc:"Whether the same request may succeed later."`
	RequestID string   `json:"request_id"`
	// Field is the first of Errors.
	Field       string            `json:"field,omitempty" doc:"The field of the request that is at fault."`
	Errors      []FieldError      `json:"errors,omitempty" nullable:"false" doc:"All fields at fault."`
	Capability  string            `json:"capability,omitempty" doc:"What the provider lacks."`
	Provider    string            `json:"provider,omitempty"`
	InstanceID  string            `json:"instance_id,omitempty"`
	Tried       []RoutingRefusal  `json:"tried,omitempty" nullable:"false" doc:"Other providers that could not serve either."`
	Diagnostics []AdminDiagnostic `json:"diagnostics,omitempty" nullable:"false" doc:"All mistakes in a configuration that was refused, and warnings; for administrators."`

	Quota *QuotaRefusal `json:"quota,omitempty" doc:"Which limit stands in the way, for SB008 of the broker itself."`
}

// FieldError says what is wrong with one field.
type FieldError struct {
	_      struct{} `additionalProperties:"true"`
	Field  string   `json:"field" example:"timeout"`
	Detail string   `json:"detail" example:"must be a number"`
}

const (
	problemType = "application/problem+json"
	// statusClientGone is only ever seen in the log.
	statusClientGone = 499
)

// requestError is a request that could not be read.
type requestError struct {
	status int
	detail string
	fields []FieldError
}

func (e *requestError) Error() string { return e.detail }

func fieldsError(fields []FieldError) error {
	var texts []string
	for _, f := range fields {
		texts = append(texts, f.Field+": "+f.Detail)
	}
	return &requestError{status: http.StatusUnprocessableEntity, detail: strings.Join(texts, "; "), fields: fields}
}

// problemOf turns any error into a problem and the headers that go with it.
// What is not known to be fit for the caller stays out of it.
func problemOf(err error, requestID string) (Problem, map[string]string) {
	headers := map[string]string{}
	p := Problem{RequestID: requestID}
	code := sdk.CodeInternal
	if fault, ok := errors.AsType[*instance.Fault](err); ok {
		p.Provider, p.InstanceID, p.Tried = fault.Provider, fault.InstanceID, triedOf(fault.Tried)
	}
	if e, ok := errors.AsType[*unsatisfiableRange](err); ok {
		code, p.Status, p.Detail = sdk.CodeInvalidRequest, http.StatusRequestedRangeNotSatisfiable, e.Error()
		headers[fiber.HeaderContentRange] = fmt.Sprintf("bytes */%d", e.size)
	} else if e, ok := errors.AsType[*requestError](err); ok {
		code, p.Status, p.Detail, p.Errors = sdk.CodeInvalidRequest, e.status, e.detail, e.fields
	} else if e, ok := errors.AsType[*conflictError](err); ok {
		code, p.Status, p.Detail = sdk.CodeConflict, e.status, e.Error()
		p.Errors = []FieldError{{Field: e.field, Detail: e.detail}}
	} else if e, ok := errors.AsType[*fiber.Error](err); ok {
		code, p.Status, p.Detail = frameworkError(e)
	} else if e, ok := configurationProblem(err); ok {
		code, p.Status, p.Detail, p.Errors, p.Diagnostics = sdk.CodeInvalidConfig, sdk.CodeInvalidConfig.Info().HTTPStatus, e.detail, e.fields, e.diagnostics
	} else if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code.Known() && e.Code.Info().HTTPStatus >= 400 {
		code, p.Status, p.Detail = e.Code, e.Code.Info().HTTPStatus, e.Message
		p.Capability = string(e.Capability)
		if e.Field != "" {
			p.Errors = []FieldError{{Field: e.Field, Detail: e.Message}}
		}
		if e.Code == sdk.CodeInvalidRequest && e.Field != "" {
			p.Status = http.StatusUnprocessableEntity
			p.Detail = e.Field + ": " + e.Message
		}
		if e.RetryAfter > 0 {
			headers[fiber.HeaderRetryAfter] = strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds())))
		}
	}
	if refusal, ok := errors.AsType[*quota.Refusal](err); ok {
		p.Quota = refusalOf(refusal)
	}
	if code == sdk.CodeInternal {
		p.Status = http.StatusInternalServerError
		p.Detail = "Something went wrong that should not have; the broker's log has more under this request_id."
		if p.Provider != "" {
			p.Detail = fmt.Sprintf("The provider %q failed in a way that no provider should; the broker's log has more under this request_id.", p.Provider)
		}
		p.Errors = nil
	}
	if code == sdk.CodeNotAuthenticated {
		headers[fiber.HeaderWWWAuthenticate] = `Bearer realm="sandbox-broker"`
	}
	if len(p.Errors) > 0 {
		p.Field = p.Errors[0].Field
	}
	info := code.Info()
	p.Code, p.Title, p.Retryable = string(code), info.Title, info.Retryable
	p.Retryable = p.Retryable || headers[fiber.HeaderRetryAfter] != ""
	p.Type = "urn:sandbox-broker:" + p.Code
	return p, headers
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
func answerError(c *fiber.Ctx, err error, requestID string) sdk.Code {
	if errors.Is(err, context.Canceled) && sdk.CodeOf(err) == sdk.CodeInternal {
		c.Status(statusClientGone) // nobody reads it
		return ""
	}
	if e, ok := errors.AsType[*fiber.Error](err); ok && e.Code == http.StatusMethodNotAllowed && c.Method() == http.MethodOptions {
		c.Status(http.StatusNoContent) // Fiber has set Allow
		return ""
	}
	p, headers, body := encodeProblem(err, requestID)
	for name, value := range headers {
		c.Set(name, value)
	}
	c.Status(p.Status)
	c.Response().SetBodyRaw(body)
	return sdk.Code(p.Code)
}

// writeProblem does the same for a stream that has not begun.
func writeProblem(w http.ResponseWriter, err error, requestID string) sdk.Code {
	p, headers, body := encodeProblem(err, requestID)
	clear(w.Header()) // of what the handler was about to say
	w.Header().Set(headerRequestID, requestID)
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone
	return sdk.Code(p.Code)
}

func encodeProblem(err error, requestID string) (p Problem, headers map[string]string, body []byte) {
	p, headers = problemOf(err, requestID)
	headers[fiber.HeaderContentType] = problemType
	body, encodeErr := encode(p)
	if encodeErr != nil {
		body = fmt.Appendf(nil, `{"code":%q,"status":500}`, sdk.CodeInternal)
	}
	return p, headers, body
}

// encode returns v as JSON on one line, without escapes that only HTML needs.
func encode(v any) ([]byte, error) {
	if own, ok := v.(interface{ encode() ([]byte, error) }); ok {
		return own.encode()
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
