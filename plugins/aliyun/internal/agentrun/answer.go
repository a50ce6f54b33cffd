package agentrun

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// MaxAnswer bounds what is read of an answer, in bytes.
const MaxAnswer = 16 << 20

// InvalidAnswer is the code of a Failure where the service has claimed a success.
const InvalidAnswer = "InvalidAnswer"

// maxMessage bounds the text of the service in an error.
const maxMessage = 512

// Failure is what the service has answered instead of what was asked for.
type Failure struct {
	// Status of HTTP; 200 is possible.
	Status int
	// Code is the service's or its gateway's; empty if the answer had none.
	Code, Message, RequestID string
	// RetryAfter is how long the service asks to wait.
	RetryAfter time.Duration
	// Open says that the call may have had an effect, whatever the rest says: it is of a
	// look afterwards.
	Open bool
}

// Error tells all of it but the pause.
func (f *Failure) Error() string {
	text := fmt.Sprintf("the service answered %d", f.Status)
	for _, part := range []string{f.Code, f.Message} {
		if part != "" {
			text += " " + part
		}
	}
	if f.RequestID != "" {
		text += " (request " + f.RequestID + ")"
	}
	return text
}

// NotFound is the service's code for what does not exist.
const NotFound = "ERR_NOT_FOUND"

// missing are the codes with which the service, its gateway and the inside of a sandbox
// say that something does not exist.
var missing = []string{NotFound, "NOT_FOUND", "SandboxNotFound", "TemplateNotFound", "NotFound"}

// Missing says that the thing asked for does not exist, in the service's own words. A
// 404 can also be about the access key, or the page of whatever stands in between.
func (f *Failure) Missing() bool {
	switch f.Status {
	case http.StatusNotFound:
		return slices.Contains(missing, f.Code)
	case http.StatusOK:
		return slices.Contains(missing, f.Code) || f.Code != InvalidAnswer && strings.Contains(strings.ToLower(f.Message), "not found")
	}
	return false
}

// Stray says that a 404 is nobody's who knows: what was asked for may be there.
func (f *Failure) Stray() bool {
	return f.Status == http.StatusNotFound && !f.Missing() && !f.Refused()
}

// Exists says that the name is taken. The service says so with 409, and with 400 and
// 500 too.
func (f *Failure) Exists() bool {
	return f.Status == http.StatusConflict || strings.Contains(strings.ToLower(f.Message), "already exists")
}

// Throttled says that there were too many calls, or no room for more.
func (f *Failure) Throttled() bool {
	return f.Status == http.StatusTooManyRequests || strings.HasPrefix(f.Code, "Throttling") ||
		strings.HasPrefix(f.Code, "QuotaExceeded") || strings.HasPrefix(f.Code, "LimitExceeded")
}

// Refused says that the credentials are no good or their rights do not suffice.
func (f *Failure) Refused() bool {
	if f.Status == http.StatusUnauthorized || f.Status == http.StatusForbidden {
		return true
	}
	for _, prefix := range []string{"InvalidAccessKeyId", "SignatureDoesNotMatch", "IncompleteSignature", "SignatureNonceUsed", "InvalidSecurityToken", "InvalidTimeStamp", "ERR_FORBIDDEN", "NoPermission", "AccessDenied", "Forbidden"} {
		if strings.HasPrefix(f.Code, prefix) {
			return true
		}
	}
	return false
}

// Expired says that temporary credentials are not good any more.
func (f *Failure) Expired() bool { return strings.HasPrefix(f.Code, "InvalidSecurityToken") }

// Read takes an answer apart and decodes what it holds into value, which may be nil.
// What is not a success is a *Failure, also where the status says 200.
func Read(status int, header http.Header, body []byte, value any) error {
	var e envelope
	structured := json.Unmarshal(body, &e) == nil
	code := text(e.Code)
	if status >= 200 && status < 300 && (code == "" || code == "SUCCESS") && text(e.GatewayCode) == "" && text(e.Error.Code) == "" {
		return decode(body, e.Data, value)
	}
	f := &Failure{
		Status:     status,
		Code:       cmp.Or(code, text(e.GatewayCode), text(e.Error.Code)),
		Message:    cmp.Or(e.Message, e.GatewayMessage, e.Error.Message),
		RequestID:  cmp.Or(e.RequestID, e.GatewayRequestID),
		RetryAfter: pause(header),
	}
	if !structured && !bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		f.Message = strings.TrimSpace(string(body))
	}
	if len(f.Message) > maxMessage {
		f.Message = strings.ToValidUTF8(f.Message[:maxMessage], "") + "…"
	}
	for _, name := range []string{"X-Acs-Request-Id", "X-Agentrun-Request-Id", "X-Request-Id", "X-Fc-Request-Id"} {
		f.RequestID = cmp.Or(f.RequestID, header.Get(name))
	}
	return f
}

// decode takes data where there is an envelope, else the whole.
func decode(body []byte, data json.RawMessage, value any) error {
	if value == nil {
		return nil
	}
	if len(data) > 0 && !bytes.Equal(data, []byte("null")) {
		body = data
	}
	if err := json.Unmarshal(body, value); err != nil {
		return &Failure{Status: http.StatusBadGateway, Code: InvalidAnswer, Message: "the answer is not what it should be: " + err.Error()}
	}
	return nil
}

// text reads a code, which need not be a string.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// pause reads Retry-After, or what the gateway has instead.
func pause(header http.Header) time.Duration {
	if after := retry.After(header); after > 0 {
		return after
	}
	for _, name := range []string{"X-Ratelimit-User-Api", "X-Ratelimit-User"} {
		limit := header.Get(name)
		for part := range strings.SplitSeq(limit, ",") {
			var left int64
			if _, err := fmt.Sscanf(strings.TrimSpace(part), "TimeLeft:%d", &left); err == nil && left > 0 && strings.Contains(limit, "Remain:0") {
				return time.Duration(left) * time.Millisecond
			}
		}
	}
	return 0
}
