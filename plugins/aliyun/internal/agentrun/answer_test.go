package agentrun_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
)

func TestAnswersAreReadInAllTheirForms(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   string // the sandbox, or the code of the failure
	}{
		"an envelope":                       {200, `{"code":"SUCCESS","data":{"sandboxId":"s","sandboxIdleTimeoutSeconds":"600"}}`, "s"},
		"no envelope":                       {200, `{"sandboxId":"s","sandboxIdleTimeoutSeconds":600}`, "s"},
		"a failure with HTTP 200":           {200, `{"code":"ERR_NOT_FOUND","message":"sandbox not found"}`, "ERR_NOT_FOUND"},
		"a failure of the gateway":          {400, `{"Code":"SignatureDoesNotMatch","Message":"m","RequestId":"r"}`, "SignatureDoesNotMatch"},
		"a code that is a number":           {400, `{"Code":17}`, "17"},
		"a failure inside of the sandbox":   {400, `{"error":{"code":"INVALID_REQUEST","message":"m"}}`, "INVALID_REQUEST"},
		"a failure inside, with HTTP 200":   {200, `{"error":{"code":"NOT_FOUND","message":"m"}}`, "NOT_FOUND"},
		"a page of HTML":                    {502, `<html>`, ""},
		"an answer that is no JSON":         {200, `<html>`, "InvalidAnswer"},
		"an answer that is not a sandbox":   {200, `{"data":[1]}`, "InvalidAnswer"},
		"nothing at all where there is one": {200, ``, "InvalidAnswer"},
	} {
		t.Run(name, func(t *testing.T) {
			var s agentrun.Sandbox
			err := agentrun.Read(test.status, http.Header{}, []byte(test.body), &s)
			if f, ok := errors.AsType[*agentrun.Failure](err); ok {
				assert.Equal(t, f.Code, test.want)
				return
			}
			assert.NilError(t, err)
			assert.Equal(t, s.SandboxID, test.want)
			assert.Equal(t, s.SandboxIdleTimeoutSeconds, agentrun.Seconds(600))
		})
	}
}

func TestAFailureTellsWhatItIs(t *testing.T) {
	read := func(status int, body string, header ...string) *agentrun.Failure {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		f, _ := errors.AsType[*agentrun.Failure](agentrun.Read(status, h, []byte(body), nil))
		return f
	}
	assert.Check(t, read(404, `{"code":"ERR_NOT_FOUND"}`).Missing())
	assert.Check(t, read(404, `{"error":{"code":"NOT_FOUND"}}`).Missing())
	assert.Check(t, read(200, `{"code":"ERR_BAD_REQUEST","message":"sandbox not found"}`).Missing())
	for _, page := range []string{``, `404 page not found`, `<html>404 Not Found</html>`, `{"detail":"Not Found"}`, `{"code":404}`, `null`} {
		assert.Check(t, read(404, page).Stray() && !read(404, page).Missing(), page)
	}
	assert.Check(t, !read(404, `{"Code":"InvalidAccessKeyId.NotFound"}`).Stray())
	assert.Check(t, !read(404, `{"Code":"InvalidAccessKeyId.NotFound"}`).Missing())
	assert.Check(t, read(404, `{"Code":"InvalidAccessKeyId.NotFound"}`).Refused())
	assert.Check(t, read(500, `{"message":"template Already Exists"}`).Exists())
	assert.Check(t, read(400, `{"Code":"Throttling.Api"}`).Throttled())
	assert.Equal(t, read(429, ``, "Retry-After", "7").RetryAfter, 7*time.Second)
	assert.Equal(t, read(429, ``, "X-Ratelimit-User", "Limit:5,Remain:0,TimeLeft:1500,Reset:1").RetryAfter, 1500*time.Millisecond)
	assert.Equal(t, read(500, ``, "X-Acs-Request-Id", "r-1").RequestID, "r-1")
	assert.Check(t, len(read(500, strings.Repeat("x", 5000)).Error()) < 600)
}

func FuzzRead(f *testing.F) {
	f.Add(200, []byte(`{"code":"SUCCESS","data":{"sandboxId":"s"}}`))
	f.Add(400, []byte(`{"Code":{},"error":null}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		var s agentrun.Sandbox
		err := agentrun.Read(status, http.Header{}, body, &s)
		_, failed := errors.AsType[*agentrun.Failure](err)
		assert.Equal(t, failed, err != nil, "every error is a Failure")
		assert.Check(t, failed || status >= 200 && status < 300, "nothing but 2xx is a success")
	})
}
