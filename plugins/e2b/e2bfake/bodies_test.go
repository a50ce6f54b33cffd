package e2bfake_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

func TestMain(m *testing.M) {
	e2bfake.Main()
	m.Run()
}

func started(t *testing.T) *e2bfake.Server {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := e2bfake.Start(e2bfake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		assert.Check(t, server.Close())
	})
	return server
}

// asked returns what the control API says to a request, and whether it has the form that
// errors have.
func asked(t *testing.T, server *e2bfake.Server, request, body string) (status int, message string) {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, server.APIURL+path, strings.NewReader(body))
	assert.NilError(t, err)
	req.Header.Set("X-Api-Key", e2bfake.DefaultAPIKey)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	var answer struct {
		Code    int
		Message string
	}
	if resp.StatusCode >= http.StatusBadRequest {
		assert.NilError(t, json.NewDecoder(resp.Body).Decode(&answer))
		assert.Equal(t, answer.Code, resp.StatusCode)
	}
	return resp.StatusCode, answer.Message
}

// What passes asks for a template or a sandbox that is not there, and is told so.
func TestBodiesOfTheControlAPIAreWhatIsPublished(t *testing.T) {
	server := started(t)
	const (
		create, createNew   = "POST /sandboxes", "POST /v2/sandboxes"
		connect, connectNew = "POST /sandboxes/iabc/connect", "POST /v2/sandboxes/iabc/connect"
		snapshot            = "POST /sandboxes/iabc/snapshots"
		timeout, pause      = "POST /sandboxes/iabc/timeout", "POST /sandboxes/iabc/pause"
		good                = ""
	)
	for _, test := range []struct{ request, body, refusal string }{
		{create, `{"templateID":"nothing"}`, good},
		{createNew, `{"templateID":"team/nothing:v1.2","timeout":1,"metadata":{"a":"b"},"envVars":{"A":""},"secure":true,"allow_internet_access":false}`, good},
		{create, `{"templateID":"nothing","secure":true,"network":{"allowPublicTraffic":false,"allowOut":["8.8.8.8","10.0.0.0/8","*.example.com"],"denyOut":["0.0.0.0/0"]}}`, good},
		{create, ``, "is no JSON"},
		{create, `{"templateID":`, "is no JSON"},
		{create, `{"templateID":"nothing"} {}`, "goes on behind its end"},
		{create, `[]`, "the body must be an object"},
		{create, `null`, "the body must be an object"},
		{create, `{}`, "templateID is required"},
		{createNew, `{"timeout":10}`, "templateID is required"},
		{create, `{"templateID":null}`, "templateID must be a string"},
		{create, `{"templateID":7}`, "templateID must be a string"},
		{create, `{"templateID":""}`, "templateID must be of the form"},
		{create, `{"templateID":"a b"}`, "templateID must be of the form"},
		{create, `{"templateID":"a","timeout":null}`, "timeout must be a whole number"},
		{create, `{"templateID":"a","timeout":"10"}`, "timeout must be a whole number"},
		{create, `{"templateID":"a","timeout":1.5}`, "timeout must be a whole number"},
		{create, `{"templateID":"a","timeout":0}`, "timeout must be a whole number from 1"},
		{create, `{"templateID":"a","timeout":2147483648}`, "to 2147483647"},
		{create, `{"templateID":"a","timeout":86401}`, "Timeout cannot be greater"},
		{create, `{"templateID":"a","metadata":{"a":1}}`, "metadata.a must be a string"},
		{create, `{"templateID":"a","metadata":[]}`, "metadata must be an object"},
		{create, `{"templateID":"a","envVars":{"A":null}}`, "envVars.A must be a string"},
		{create, `{"templateID":"a","envVars":{"A=B":""}}`, "whose name must be of the form"},
		{create, `{"templateID":"a","secure":"yes"}`, "secure must be true or false"},
		{create, `{"templateID":"a","allow_internet_access":0}`, "allow_internet_access must be true or false"},
		{create, `{"templateID":"a","network":null}`, "network must be an object"},
		{create, `{"templateID":"a","network":{"allowPublicTraffic":1}}`, "network.allowPublicTraffic must be true or false"},
		{create, `{"templateID":"a","network":{"allowOut":"8.8.8.8"}}`, "network.allowOut must be an array"},
		{create, `{"templateID":"a","network":{"denyOut":[7]}}`, "network.denyOut[0] must be a string"},
		{create, `{"templateID":"base","network":{"denyOut":["example.com"]}}`, "invalid denied CIDR"},
		{create, `{"templateID":"base","network":{"denyOut":["1.2.3.4/33"]}}`, "invalid denied CIDR"},
		{create, `{"templateID":"base","network":{"allowOut":["a b"],"denyOut":["0.0.0.0/0"]}}`, "invalid allowed destination"},
		{create, `{"templateID":"base","network":{"allowOut":["1.2.3"],"denyOut":["0.0.0.0/0"]}}`, "invalid allowed destination"},
		{create, `{"templateID":"base","network":{"allowOut":["example.com"]}}`, "where 0.0.0.0/0 is denied"},
		{create, `{"templateID":"base","network":{"allowPublicTraffic":false}}`, "needs a secure sandbox"},
		{create, `{"templateID":"a","autoPause":true}`, "autoPause asks for what the fake does not have"},
		{create, `{"templateID":"a","network":{"rules":{}}}`, "network.rules asks for what the fake does not have"},
		{connect, `{"timeout":0}`, good},
		{connect, `{}`, "timeout is required"},
		{connect, ``, "is no JSON"},
		{connect, `{"timeout":-1}`, "timeout must be a whole number from 0"},
		{connectNew, `{}`, good},
		{connectNew, `{"timeout":"1"}`, "timeout must be a whole number"},
		{connectNew, `{"memory":false}`, "memory asks for what the fake does not have"},
		{timeout, `{"timeout":0}`, good},
		{timeout, `{}`, "timeout is required"},
		{timeout, `{"timeout":null}`, "timeout must be a whole number"},
		{timeout, `{"timeout":99999999999}`, "timeout must be a whole number"},
		{pause, ``, good},
		{pause, `{}`, good},
		{pause, `null`, "the body must be an object"},
		{pause, `{"memory":true}`, good},
		{pause, `{"memory":false}`, "memory asks for what the fake does not have"},
		{snapshot, `{}`, good},
		{snapshot, `{"name":"our-team/mine_1:v1.2"}`, good},
		{snapshot, ``, "is no JSON"},
		{snapshot, `{"name":""}`, "name must be of the form"},
		{snapshot, `{"name":"Mine"}`, "name must be of the form"},
		{snapshot, `{"name":"a b"}`, "name must be of the form"},
		{snapshot, `{"name":"another/mine"}`, "must match your team"},
		{"GET /snapshots?limit=0", ``, `parameter "limit" in query must be of the form`},
		{"GET /snapshots?name=Mine", ``, `parameter "name" in query must be of the form`},
		{"GET /snapshots?name=another/mine", ``, "must match your team"},
		{"GET /snapshots?nextToken=x", ``, "Invalid next token"},
		{"GET /snapshots?sandboxId=iabc", ``, `parameter "sandboxId" in query is not known`},
		{"DELETE /templates/our-team%2Fmine:default", ``, good},
		{"DELETE /templates/base", ``, good},
		{"DELETE /templates/a%20b", ``, "Invalid template ID"},
		{"DELETE /templates/mine", `{}`, "must be empty"},
		{"GET /sandboxes/iabc", ``, good},
		{"GET /sandboxes/iabc", `{}`, "must be empty"},
		{"GET /sandboxes/iabc?a=b", ``, `parameter "a" in query is not known`},
		{"DELETE /sandboxes/iabc", `{}`, "must be empty"},
		{"GET /v2/sandboxes?limit=0", ``, `parameter "limit" in query must be of the form`},
		{"GET /v2/sandboxes?limit=101", ``, `parameter "limit" in query must be of the form`},
		{"GET /v2/sandboxes?state=ended", ``, `parameter "state" in query must be of the form`},
		{"GET /v2/sandboxes?state=paused&state=running", ``, "more than once"},
		{"GET /v2/sandboxes?order=asc", ``, `parameter "order" in query is not known`},
		{"GET /v2/sandboxes?limit=1;state=paused", ``, "invalid semicolon"},
	} {
		t.Run(test.request+" "+test.body, func(t *testing.T) {
			status, message := asked(t, server, test.request, test.body)
			if test.refusal == good {
				assert.Equal(t, status, http.StatusNotFound, message)
				return
			}
			assert.Equal(t, status, http.StatusBadRequest, message)
			assert.Check(t, is.Contains(message, test.refusal))
		})
	}
	assert.Equal(t, server.Created(), 0)
	assert.Equal(t, len(server.Unread()), 0, "%v", server.Unread())
	status, message := asked(t, server, "GET /v2/sandboxes?limit=100&state=running,paused&metadata=a%3Db", "")
	assert.Equal(t, status, http.StatusOK, message)
}

// The original ignores what it does not know, and so nobody notices a wrong name there.
func TestMembersThatNobodyReadsAreTakenDown(t *testing.T) {
	server := started(t)
	for _, body := range []string{
		`{"templateID":"nothing","template":"x"}`, `{"templateID":"nothing","allowInternetAccess":false}`, `{"templateID":"nothing","network":{"denyout":[]}}`,
	} {
		status, message := asked(t, server, "POST /sandboxes", body)
		assert.Equal(t, status, http.StatusNotFound, message)
	}
	assert.DeepEqual(t, server.Unread(), []string{
		"POST /sandboxes template", "POST /sandboxes allowInternetAccess", "POST /sandboxes network.denyout",
	})
}
