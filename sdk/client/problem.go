package client

import "fmt"

// Problem is a refusal or a failure as RFC 9457 wants it. It is the error that the
// client's methods return for it.
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

// Error implements error.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s %s: %s (request %s)", p.Code, p.Title, p.Detail, p.RequestID)
}

// FieldError says what is wrong with one field.
type FieldError struct {
	_      struct{} `additionalProperties:"true"`
	Field  string   `json:"field" example:"timeout"`
	Detail string   `json:"detail" example:"must be a number"`
}

// QuotaRefusal says which limit stands in the way.
type QuotaRefusal struct {
	_     struct{} `additionalProperties:"true"`
	Limit string   `json:"limit" doc:"As the operator's configuration names it; provider if the provider has no room." example:"max_concurrent"`
	Value float64  `json:"value,omitempty" doc:"Of the limit, in the unit of its name."`
	Used  float64  `json:"used" doc:"How much of it is taken now, with what is reserved."`
}
