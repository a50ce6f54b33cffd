package frontdoor

import "github.com/sandbox-broker/sandbox-broker/broker/api/rest"

// Fault is one thing that is wrong with a request, as FastAPI tells it.
type Fault struct {
	Type string `json:"type"`
	Loc  []any  `json:"loc"`
	Msg  string `json:"msg"`
}

// Faults are an error: a request whose body is not what it must be.
type Faults []Fault

// Add adds what is wrong with a field of the body.
func (f *Faults) Add(kind, field, text string) {
	*f = append(*f, Fault{Type: kind, Loc: []any{"body", field}, Msg: text})
}

// Error implements error. There must be one at least.
func (f Faults) Error() string { return f[0].Msg }

// FaultsOf finds what is wrong with a request in a refusal that somebody else made.
func FaultsOf(r rest.Refusal) Faults {
	faults := Faults{}
	for _, e := range r.Errors {
		faults.Add("value_error", e.Field, e.Detail)
	}
	if len(faults) == 0 {
		faults = Faults{{Type: "value_error", Loc: []any{"body"}, Msg: r.Detail}}
	}
	return faults
}
