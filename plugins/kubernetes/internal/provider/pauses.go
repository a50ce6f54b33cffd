package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// longestPause is the longest pause that the API server may ask for, in seconds, and that
	// is waited for here. client-go does that, up to ten times for one call.
	longestPause = 1
	// mostRefusal is how much is read of an answer that refuses a call.
	mostRefusal = 64 << 10
)

// tellPauses has long pauses that the API server asks for told to the caller, who may have
// something better to do than wait: client-go would wait itself, whatever the pause.
func tellPauses(next http.RoundTripper) http.RoundTripper { return pauses{next} }

type pauses struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p pauses) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return resp, err
	}
	pause := pauseOf(resp)
	if pause <= longestPause {
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostRefusal))
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	// The header has client-go wait; the same in the body does not.
	resp.Header.Del("Retry-After")
	resp.Header.Set("Content-Type", "application/json")
	if body, err = json.Marshal(refusal(resp.StatusCode, body, pause)); err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// pauseOf is the pause that an answer asks for, in seconds; 0 for none that client-go would see.
func pauseOf(resp *http.Response) int32 {
	pause, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		return 0
	}
	return int32(pause)
}

// WrappedRoundTripper lets client-go find what it wraps.
func (p pauses) WrappedRoundTripper() http.RoundTripper { return p.next }

// refusal is an answer as the API server's own form has it, with the pause.
func refusal(code int, body []byte, pause int32) metav1.Status {
	var s metav1.Status
	if json.Unmarshal(body, &s) != nil || s.Kind != "Status" {
		s = metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Message: strings.TrimSpace(string(body[:min(len(body), 1024)])), Code: int32(code), Reason: reasons[code],
		}
	}
	if s.Details == nil {
		s.Details = &metav1.StatusDetails{}
	}
	s.Details.RetryAfterSeconds = pause
	return s
}

// reasons are those of the API server for answers that may ask for a pause.
var reasons = map[int]metav1.StatusReason{
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}
