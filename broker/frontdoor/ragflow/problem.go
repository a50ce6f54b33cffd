package ragflow

import (
	"errors"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// unserved answers a run that the broker could not carry out. The client raises an error
// for every status but 200, and its Go port sends the request up to three times again for
// one of the 5xx: that is kept for what did not come so far.
func unserved(err error, requestID string) (int, answer, error) {
	if peer.Has(err) { // it is passed on
		return 0, answer{}, err
	}
	r := rest.RefusalOf(err, requestID)
	a := answer{Artifacts: []artifact{}, Status: statusRunner, Code: r.Code, RequestID: requestID}
	switch r.Code {
	case sdk.CodeQuotaExceeded:
		a.ExitCode, a.Stderr, a.Detail = exitBusy, "Container pool is busy", word("no_available_container")
	case sdk.CodeInvalidRequest, sdk.CodeNotAllowed, sdk.CodeNotAuthenticated, sdk.CodeConflict:
		return 0, answer{}, err
	default:
		a.ExitCode, a.Stderr, a.Detail = exitRunner, string(r.Code)+": "+r.Detail, word("internal_error")
	}
	return http.StatusOK, a, nil
}

// refusal is FastAPI's form of one, with what is ours beside it.
type refusal struct {
	// Detail is a text, or the faults of a body.
	Detail    any      `json:"detail"`
	Code      sdk.Code `json:"code"`
	RequestID string   `json:"request_id"`
}

// problem puts refusals into RAGFlow's form.
func problem(err error, requestID string) rest.Problem {
	if faults, ok := errors.AsType[frontdoor.Faults](err); ok {
		err = rest.BadRequest(http.StatusUnprocessableEntity, faults.Error())
		return unprocessable(faults, rest.RefusalOf(err, requestID))
	}
	r := rest.RefusalOf(err, requestID)
	switch {
	case r.Code == sdk.CodeQuotaExceeded:
		return r.As("application/json", answer{
			Artifacts: []artifact{}, Status: statusRunner, ExitCode: exitTooMany, Code: r.Code, RequestID: requestID,
			Stderr: "Too many requests, please try again later", Detail: word(r.Detail),
		})
	case r.Status == http.StatusUnprocessableEntity:
		return unprocessable(frontdoor.FaultsOf(r), r)
	default:
		return r.As("application/json", refusal{string(r.Code) + ": " + r.Detail, r.Code, requestID})
	}
}

func unprocessable(faults frontdoor.Faults, r rest.Refusal) rest.Problem {
	return r.As("application/json", refusal{faults, r.Code, r.RequestID})
}
