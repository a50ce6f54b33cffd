package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// escaped writes an ID as clients do that escape more than they must.
func escaped(id string) string { return strings.ReplaceAll(url.PathEscape(id), ":", "%3A") }

// variables are the fields of an object with so many of them.
func variables(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"V%d":"x"`, i)
	}
	return b.String()[1:]
}

func TestBadRequests(t *testing.T) {
	f := start(t)
	for name, test := range map[string]struct {
		body    string
		headers []string
		status  int
		field   string
		detail  string
	}{
		"an unknown field":                       {`{"code":"1","language":"js","timeuot":3}`, nil, 422, "timeuot", "is not a field of this request; there are: arguments, artifacts, code"},
		"a field in the wrong case":              {`{"code":"1","language":"js","Timeout":3}`, nil, 422, "Timeout", "is not a field"},
		"a field twice":                          {`{"code":"1","language":"js","code":"2"}`, nil, 422, "code", "is given twice"},
		"a missing field":                        {`{"language":"js"}`, nil, 422, "code", "is required"},
		"a required field that is null":          {`{"language":"js","code":null}`, nil, 422, "code", "is required"},
		"an empty code":                          {`{"language":"js","code":""}`, nil, 422, "code", "must not be empty"},
		"a number for a string":                  {`{"code":5,"language":"js"}`, nil, 422, "code", "must be a string, not a number"},
		"a string for a number":                  {`{"code":"1","language":"js","timeout":"3"}`, nil, 422, "timeout", "must be a number, not a string"},
		"a string for a boolean":                 {`{"code":"1","language":"js","keep":"yes"}`, nil, 422, "keep", "must be a boolean, not a string"},
		"an array for arguments":                 {`{"code":"1","language":"js","arguments":[1]}`, nil, 422, "arguments", "must be an object, not an array"},
		"an object for a string":                 {`{"code":{"a":[{}]},"language":"js"}`, nil, 422, "code", "must be a string, not an object"},
		"a timeout of zero":                      {`{"code":"1","language":"js","timeout":0}`, nil, 422, "timeout", "must be more than 0"},
		"a negative timeout":                     {`{"code":"1","language":"js","timeout":-1}`, nil, 422, "timeout", "must be more than 0"},
		"a timeout above the maximum":            {`{"code":"1","language":"js","timeout":601}`, nil, 422, "timeout", "must be more than 0 and at most 600 seconds"},
		"a timeout beyond all numbers":           {`{"code":"1","language":"js","timeout":1e400}`, nil, 422, "timeout", "is out of range"},
		"a timeout beyond all durations":         {`{"code":"1","language":"js","timeout":1e300}`, nil, 422, "timeout", "at most 600 seconds"},
		"a session with a colon":                 {`{"code":"1","language":"js","session_id":"a:b"}`, nil, 422, "session_id", "must be made of letters, digits"},
		"a session with a newline at its end":    {`{"code":"1","language":"js","session_id":"a\n"}`, nil, 422, "session_id", "must be made of letters, digits"},
		"a session that is too long":             {`{"code":"1","language":"js","session_id":"` + strings.Repeat("a", 65) + `"}`, nil, 422, "session_id", "at most 64 characters"},
		"a variable that is a number":            {`{"code":"1","language":"js","env":{"A":1}}`, nil, 422, "env.A", "must be a string, not a number"},
		"a variable that is null":                {`{"code":"1","language":"js","env":{"A":null}}`, nil, 422, "env.A", "must be a string, not null"},
		"a variable twice":                       {`{"code":"1","language":"js","env":{"A":"1","A":"2"}}`, nil, 422, "env.A", "is given twice"},
		"too many variables":                     {`{"code":"1","language":"js","env":{` + variables(101) + `}}`, nil, 422, "env", "must have at most 100 fields"},
		"an unknown language":                    {`{"code":"1","language":"cobol"}`, nil, 422, "language", "it runs: python, javascript, bash"},
		"an unknown provider":                    {`{"code":"1","language":"js","provider":"third"}`, nil, 422, "provider", "there are: first, second"},
		"an unknown template":                    {`{"code":"1","language":"js","template":"ruby"}`, nil, 422, "template", "it has: python, nodejs"},
		"arguments for bash":                     {`{"code":"1","language":"sh","arguments":{}}`, nil, 422, "arguments", "bash has no main"},
		"an array instead of an object":          {`[{"code":"1"}]`, nil, 422, "body", "must be an object, not an array"},
		"null instead of an object":              {`null`, nil, 422, "body", "must be an object, not null"},
		"no JSON":                                {`{"code":`, nil, 400, "body", "The body is not JSON: unexpected end of JSON input at byte 8."},
		"something after the JSON":               {`{"code":"1","language":"js"} {}`, nil, 400, "body", "after top-level value"},
		"a comment":                              {`{"code":"1" /* x */}`, nil, 400, "body", "is not JSON"},
		"NaN":                                    {`{"code":"1","language":"js","timeout":NaN}`, nil, 400, "body", "is not JSON"},
		"bytes that are not UTF-8":               {"{\"code\":\"\xff\",\"language\":\"js\"}", nil, 400, "body", "is not UTF-8"},
		"only white space":                       {"  \n", nil, 400, "body", "is empty"},
		"JSON that is too deep":                  {`{"arguments":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, nil, 400, "body", "is not JSON"},
		"another content type":                   {`{"code":"1","language":"js"}`, []string{"Content-Type: text/plain"}, 415, "", "must be application/json"},
		"no content type":                        {`{"code":"1","language":"js"}`, []string{"Content-Type: "}, 415, "", "must be application/json"},
		"a form":                                 {`code=1`, []string{"Content-Type: application/x-www-form-urlencoded"}, 415, "", "must be application/json"},
		"another charset":                        {`{"code":"1","language":"js"}`, []string{"Content-Type: application/json; charset=latin1"}, 415, "", "utf-8"},
		"a compressed body":                      {`{"code":"1","language":"js"}`, []string{"Content-Encoding: gzip"}, 415, "", "compressed"},
		"an unknown field with a very long name": {`{"` + strings.Repeat("x", 9999) + `":1,"code":"1","language":"js"}`, nil, 422, strings.Repeat("x", 64) + "…", "is not a field"},
	} {
		t.Run(name, func(t *testing.T) {
			p := f.do(http.MethodPost, "/api/v1/execute", test.body, test.headers...).problem(test.status, "SB010")
			assert.Equal(t, p.Field, test.field)
			assert.Check(t, cmp.Contains(p.Detail, test.detail))
			assert.Check(t, !p.Retryable)
			assert.Check(t, len(p.Detail) < 1000)
		})
	}
	assert.Check(t, cmp.Len(f.provider.Created(), 0))
}

func TestAnUnreadableBodyIsNotRepeated(t *testing.T) {
	f := start(t)
	for _, body := range []string{
		`{"code":"1","language":"js","env":{"TOKEN":12345678}}`,
		`{"code":"1","language":"js","env":"s3cret-value"}`,
		`{"code":"1","language":"js","env":{"TOKEN":"s3cret-value\u0000"}}`,
		`{"code":["s3cret-value"],"language":"js"}`,
		`{"code":"s3cret-value"`,
	} {
		resp := f.do(http.MethodPost, "/api/v1/execute", body)
		assert.Check(t, resp.StatusCode >= 400)
		for _, secret := range []string{"s3cret", "12345678"} {
			assert.Check(t, !strings.Contains(resp.text, secret), resp.text)
			assert.Check(t, !strings.Contains(f.log.String(), secret))
		}
	}
}

// TestProblemsAreWritten holds whole problem documents.
func TestProblemsAreWritten(t *testing.T) {
	f := start(t)
	f.provider.OnExecute = func(_ context.Context, req sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		switch req.Code {
		case "quota":
			err := sdk.Errorf(sdk.CodeQuotaExceeded, "The account has no credit left.")
			err.RetryAfter = 1500 * time.Millisecond
			return sdk.ExecuteResult{}, err
		case "panic":
			panic("s3cret")
		default:
			return sdk.ExecuteResult{}, errors.New("s3cret")
		}
	}
	execute := func(code string) answer {
		return f.do(http.MethodPost, "/api/v1/execute", fmt.Sprintf(`{"code":%q,"language":"python"}`, code))
	}
	limited := "Authorization: Bearer limited-token"
	for name, resp := range map[string]answer{
		"several_fields":   f.do(http.MethodPost, "/api/v1/execute", `{"language":5,"timeout":"3","colour":"red"}`),
		"not_json":         f.do(http.MethodPost, "/api/v1/execute", `{`),
		"no_token":         f.do(http.MethodGet, "/api/v1/instances", "", "Authorization: "),
		"wrong_token":      f.do(http.MethodGet, "/api/v1/instances", "", "Authorization: Bearer wrong"),
		"not_allowed":      f.do(http.MethodPost, "/api/v1/instances", `{"provider":"first"}`, limited),
		"no_such_instance": f.do(http.MethodGet, "/api/v1/instances/acme:s1:aaaaaaaaaaaaaaaaaaaa", ""),
		"no_such_route":    f.do(http.MethodGet, "/api/v1/instance", ""),
		"no_such_method":   f.do(http.MethodPut, "/api/v1/instances", ""),
		"too_large":        f.do(http.MethodPost, "/api/v1/execute", strings.Repeat(" ", maxBody+1)),
		"internal_error":   execute("anything"),
		"panic":            execute("panic"),
		"quota":            execute("quota"),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, resp.Header.Get("Content-Type"), "application/problem+json")
			assert.Equal(t, resp.Header.Get("Server"), "")
			text := resp.indented()
			golden.Assert(t, instanceIDs.ReplaceAllString(text, "acme:s-SESSION:INSTANCE"), "problem_"+name+".golden")
			switch name {
			case "no_token", "wrong_token":
				assert.Equal(t, resp.Header.Get("Www-Authenticate"), `Bearer realm="sandbox-broker"`)
			case "no_such_method":
				assert.Equal(t, resp.Header.Get("Allow"), "GET, HEAD, POST")
			case "quota":
				assert.Equal(t, resp.Header.Get("Retry-After"), "2")
			}
		})
	}
	// What the caller may not see is in the log for the operator.
	assert.Check(t, cmp.Contains(f.log.String(), "s3cret"))
}

func TestEveryCodeOfAProviderReachesTheCaller(t *testing.T) {
	f := start(t)
	for _, info := range sdk.CodeTable() {
		if info.HTTPStatus == http.StatusOK {
			continue // a result, not a problem
		}
		f.provider.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			failure := sdk.Errorf(info.Code, "because")
			failure.NoEffect = info.Code == sdk.CodeNotFound
			return sdk.ExecuteResult{}, failure
		}
		seen := info.Code.FromProvider().Info()
		if info.Code == sdk.CodeNotFound {
			seen = info // it means the instance
		}
		p := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).problem(seen.HTTPStatus, string(seen.Code))
		assert.Equal(t, p.Title, seen.Title)
		assert.Equal(t, p.Retryable, seen.Retryable)
		assert.Equal(t, p.Provider, "first")
		told := seen.Code == info.Code && info.Code != sdk.CodeInternal
		assert.Equal(t, p.Detail == "because" || strings.HasPrefix(p.Detail, "no such instance"), told, p.Detail)
	}
}

func TestATenantSeesNothingOfAnother(t *testing.T) {
	f := start(t)
	var made client.Instance
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id":"s1"}`).wants(http.StatusCreated).decode(&made)
	stranger := "Authorization: Bearer umbrella-token"
	requests := func() (texts []string) {
		for _, id := range []string{made.ID, escaped(made.ID)} {
			for _, resp := range []answer{
				f.do(http.MethodGet, "/api/v1/instances/"+id, "", stranger),
				f.do(http.MethodDelete, "/api/v1/instances/"+id, "", stranger),
				f.do(http.MethodPost, "/api/v1/instances/"+id+"/renew", `{"ttl":60}`, stranger),
				f.do(http.MethodPost, "/api/v1/instances/"+id+"/execute", `{"code":"1","language":"python"}`, stranger),
				f.do(http.MethodPost, "/api/v1/instances/"+id+"/execute", `{"code":"1","language":"cobol"}`, stranger),
			} {
				resp.problem(http.StatusNotFound, "SB013")
				resp.Header.Del("Date")
				texts = append(texts, fmt.Sprint(resp.text, resp.Header))
			}
		}
		return texts
	}
	whileItExists := requests()
	f.do(http.MethodGet, "/api/v1/instances/"+made.ID, "").wants(http.StatusOK)
	f.do(http.MethodDelete, "/api/v1/instances/"+made.ID, "").wants(http.StatusNoContent)
	assert.DeepEqual(t, whileItExists, requests())
}

func TestAuthentication(t *testing.T) {
	f := start(t)
	for name, test := range map[string]struct {
		headers []string
		ok      bool
	}{
		"a bearer token":           {[]string{"Authorization: Bearer acme-token"}, true},
		"the scheme in lower case": {[]string{"Authorization: bearer acme-token"}, true},
		"an API key":               {[]string{"Authorization: ", "X-API-Key: acme-token"}, true},
		"a wrong API key":          {[]string{"Authorization: ", "X-API-Key: wrong"}, false},
		"a wrong token with a key": {[]string{"Authorization: Bearer wrong", "X-API-Key: acme-token"}, false},
		"a key with basic":         {[]string{"Authorization: Basic YWNtZQ==", "X-API-Key: acme-token"}, true},
		"the same token twice":     {[]string{"Authorization: Bearer acme-token", "X-API-Key: acme-token"}, true},
		"two tenants' tokens":      {[]string{"Authorization: Bearer acme-token", "X-API-Key: umbrella-token"}, false},
		"a token with a wrong key": {[]string{"Authorization: Bearer acme-token", "X-API-Key: wrong"}, false},
		"basic authentication":     {[]string{"Authorization: Basic YWNtZS10b2tlbg=="}, false},
		"the bare token":           {[]string{"Authorization: acme-token"}, false},
		"nothing":                  {[]string{"Authorization: "}, false},
		"an empty bearer token":    {[]string{"Authorization: Bearer "}, false},
	} {
		t.Run(name, func(t *testing.T) {
			resp := f.do(http.MethodGet, "/api/v1/instances", "", test.headers...)
			if test.ok {
				resp.wants(http.StatusOK)
			} else {
				resp.problem(http.StatusUnauthorized, "SB011")
			}
		})
	}
}

func TestARepeatedTokenHeaderMustNotDiffer(t *testing.T) {
	f := start(t)
	for _, second := range []string{"umbrella-token", "wrong"} {
		req := f.request(t.Context(), http.MethodGet, "/api/v1/instances", "")
		req.Header.Add("Authorization", "Bearer "+second)
		resp, err := f.client.Do(req)
		assert.NilError(t, err)
		read(t, resp).problem(http.StatusUnauthorized, "SB011")
	}
}

func TestReadiness(t *testing.T) {
	f := start(t)
	f.do(http.MethodGet, "/readyz", "", "Authorization: ").wants(http.StatusOK)
	f.provider.Down = "the runtime is missing"
	p := f.do(http.MethodGet, "/readyz", "").problem(http.StatusServiceUnavailable, "SB009")
	assert.Equal(t, p.Provider, "first")
	assert.Check(t, cmp.Contains(p.Detail, "the runtime is missing"))
	f.provider.Down = ""
	f.service.Drain(t.Context())
	p = f.do(http.MethodGet, "/readyz", "").problem(http.StatusServiceUnavailable, "SB009")
	assert.Check(t, cmp.Contains(p.Detail, "shutting down"))
	f.do(http.MethodGet, "/healthz", "").wants(http.StatusOK)
	p = f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).problem(http.StatusServiceUnavailable, "SB009")
	assert.Assert(t, p.Retryable)
}

// brokenInstances panics, as no handler should.
type brokenInstances struct{ api.Instances }

func (brokenInstances) ListEverywhere(context.Context, tenant.Tenant, instance.ListRequest) (instance.Page, error) {
	panic("out of cheese")
}

func TestAPanicInAHandlerEndsNothingElse(t *testing.T) {
	f := start(t, func(opts *api.Options, _ *fixture) { opts.Instances = brokenInstances{opts.Instances} })
	p := f.do(http.MethodGet, "/api/v1/instances", "").problem(http.StatusInternalServerError, "SB000")
	assert.Check(t, !strings.Contains(p.Detail, "cheese"))
	assert.Check(t, cmp.Contains(f.log.String(), "out of cheese"))
	f.do(http.MethodGet, "/api/v1/providers", "").wants(http.StatusOK)
}

func TestTheTroubleOfAProviderIsNotThatOfItsCaller(t *testing.T) {
	f := start(t)
	refused := sdk.Errorf(sdk.CodeNotAuthenticated, "the cloud refuses the key of account 4711")
	f.provider.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		return sdk.ExecuteResult{}, refused
	}
	resp := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`)
	p := resp.problem(http.StatusServiceUnavailable, "SB009")
	assert.Equal(t, p.Provider, "first")
	assert.Assert(t, p.Retryable)
	assert.Equal(t, resp.Header.Get("WWW-Authenticate"), "")
	assert.Check(t, !strings.Contains(resp.text, "4711"))
	assert.Check(t, cmp.Contains(f.log.String(), "SB011: the cloud refuses the key of account 4711"))
}

func TestACapabilityThatAProviderLacksIsNamed(t *testing.T) {
	f := start(t)
	var made client.Instance
	f.do(http.MethodPost, "/api/v1/instances", `{"language":"python"}`).wants(http.StatusCreated).decode(&made)
	for _, route := range []struct{ method, path, body string }{
		{http.MethodPost, "", `{"argv":["true"]}`},
		{http.MethodGet, "", ""},
		{http.MethodGet, "/c-1", ""},
		{http.MethodDelete, "/c-1", ""},
		{http.MethodGet, "/c-1/logs", ""},
		{http.MethodPost, "/c-1/stdin", ""},
		{http.MethodPost, "/c-1/signal", `{"signal":"SIGTERM"}`},
		{http.MethodPost, "/c-1/resize", `{"rows":1,"columns":1}`},
		{http.MethodPost, "/c-1/wait", ""},
		{http.MethodGet, "/c-1/terminal", ""},
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			p := f.do(route.method, "/api/v1/instances/"+made.ID+"/commands"+route.path, route.body, "Accept: "+accept).problem(http.StatusNotImplemented, "SB015")
			assert.Check(t, cmp.Equal(p.Capability, "commands"))
			assert.Check(t, cmp.Equal(p.Provider, "first"))
		}
	}
}
