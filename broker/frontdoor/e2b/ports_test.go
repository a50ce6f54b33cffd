package e2b_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/frontdoortest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	domain    = "e2b.test"
	programAt = 8000
)

// seen is what a program was asked, as it tells.
type seen struct {
	Method, Path, Host, Body string
	Headers                  http.Header
}

// startPorts opens the door at its domain, with a program on port 8000 of each sandbox that
// tells what it is asked, and says back what comes by a WebSocket.
func startPorts(t *testing.T) *fixture {
	t.Helper()
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
			if !assert.Check(t, err) {
				return
			}
			defer conn.CloseNow()
			kind, text, err := conn.Read(r.Context())
			assert.Check(t, err)
			assert.Check(t, conn.Write(r.Context(), kind, append([]byte(r.RequestURI+" "), text...)))
			_, _, err = conn.Read(r.Context())
			assert.Check(t, is.Equal(websocket.CloseStatus(err), websocket.StatusNormalClosure))
			return
		}
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err)
		w.Header().Set("Set-Cookie", "a=1; Domain=e2b.test; Path=/x")
		assert.Check(t, json.NewEncoder(w).Encode(seen{r.Method, r.RequestURI, r.Host, string(body), r.Header}))
	}))
	t.Cleanup(program.Close)
	return start(t, func(opened *api.Options, b *box) {
		settings := opened.FrontDoors["e2b"]
		settings.Domain, settings.PublicPorts = domain+":8443", true
		opened.FrontDoors["e2b"] = settings
		b.Capabilities = append(b.Capabilities, sdk.CapabilityPorts)
		b.OnDialPort = func(ctx context.Context, _ string, port uint16) (net.Conn, error) {
			if port != programAt {
				return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens on port %d", port)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", program.Listener.Addr().String())
		}
	})
}

// at asks for a path at a host. Below the door's path there is nothing of it.
func (f *fixture) at(host, method, path, body string, headers ...string) answer {
	f.t.Helper()
	req := f.request(f.t.Context(), method, "", body, headers...)
	address, err := req.URL.Parse(path)
	assert.NilError(f.t, err)
	req.URL, req.Host = address, host
	return f.send(req)
}

func TestAProgramIsReachedByAHostOfItsOwn(t *testing.T) {
	f := startPorts(t)
	id := f.sandbox.SandboxID
	var made struct{ Domain string }
	f.do(http.MethodPost, "/v2/sandboxes", `{"templateID":"base"}`, apiKey).wants(http.StatusCreated).decode(&made)
	assert.Equal(t, made.Domain, "e2b.test:8443", "it is what SDKs make hosts of")

	host := "8000-" + id + "." + domain
	for _, host := range []string{host, host + ":8443", strings.ToUpper(host), host + ".", host + ".:8443"} {
		var s seen
		f.at(host, http.MethodPost, "/v2/sandboxes%2Fx?y=1", "hello", "Content-Type: text/plain").wants(http.StatusOK).decode(&s)
		assert.Equal(t, s.Method+" "+s.Path+" "+s.Host+" "+s.Body, "POST /v2/sandboxes%2Fx?y=1 localhost:8000 hello", "all paths are the program's")
	}
	for _, path := range []string{"/", "/health", "/files", "/sandboxes", "/e2b/health", "/execute", "/api/v1/instances"} {
		var s seen
		f.at(host, http.MethodGet, path, "", apiKey).wants(http.StatusOK).decode(&s)
		assert.Equal(t, s.Path, path)
	}
	var s seen
	a := f.at(host, http.MethodGet, "/", "", apiKey, "Authorization: Bearer e2b_x", "X-Access-Token: "+f.sandbox.EnvdAccessToken, "Proxy-Authorization: Basic eDp5",
		"E2b-Traffic-Access-Token: "+f.sandbox.TrafficAccessToken, "Keep-Alive: 5", "Te: trailers", "X-Mine: 1", "Origin: https://"+host, "Cookie: mine=1").wants(http.StatusOK)
	a.decode(&s)
	for name, want := range map[string]string{
		"X-Api-Key": "", "Authorization": "", "X-Access-Token": "", "E2b-Traffic-Access-Token": "", "Proxy-Authorization": "", "Keep-Alive": "",
		"X-Mine": "1", "Cookie": "mine=1", "Origin": "http://localhost:8000", "X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "",
	} {
		assert.Check(t, is.Equal(s.Headers.Get(name), want), name)
	}
	assert.Equal(t, a.Header.Get("Set-Cookie"), "a=1; Path=/x", "and for no other host")
	assert.Check(t, !strings.Contains(a.text, f.sandbox.EnvdAccessToken) && !strings.Contains(a.text, f.sandbox.TrafficAccessToken))
}

func TestAProgramIsReachedByFieldsOfTheHeader(t *testing.T) {
	f := startPorts(t)
	fields := []string{"E2b-Sandbox-Id: " + f.sandbox.SandboxID, "E2b-Sandbox-Port: 8000"}
	for _, test := range []struct{ host, path, asked, prefix string }{
		{f.address, "/e2b/sandboxes/a%2Fb?x=1", "/sandboxes/a%2Fb?x=1", "/e2b"},
		{f.address, "/e2b", "/", "/e2b"},
		{"sandbox." + domain, "/files", "/files", ""},
		{"SANDBOX." + domain + ":8443", "/e2b/files", "/e2b/files", ""},
	} {
		var s seen
		a := f.at(test.host, http.MethodPost, test.path, "hello", append(fields, "E2b-Traffic-Access-Token: x")...).wants(http.StatusOK)
		a.decode(&s)
		assert.Equal(t, s.Path+" "+s.Body, test.asked+" hello")
		assert.Equal(t, s.Headers.Get("X-Forwarded-Prefix"), test.prefix)
		assert.Equal(t, s.Headers.Get("E2b-Traffic-Access-Token"), "")
		assert.Equal(t, a.Header.Get("Set-Cookie"), "a=1; Path="+test.prefix+"/x")
		assert.Assert(t, is.Contains(a.Header.Get("Content-Security-Policy"), "sandbox"), "it shares an origin")
	}
	f.at(f.address, http.MethodGet, "/healthz", "", fields...).wants(http.StatusOK) // the broker's own
	assert.Assert(t, is.Contains(f.at(f.address, http.MethodGet, "/files", "", fields...).wants(http.StatusNotFound).text, "SB013"))
	f.do(http.MethodGet, "/health", "", "E2b-Sandbox-Id: "+f.sandbox.SandboxID, "E2b-Sandbox-Port: 49983").wants(http.StatusNoContent)
	f.do(http.MethodGet, "/health", "", "E2b-Sandbox-Port: 8000").wants(http.StatusOK) // of no sandbox
}

func TestAWebSocketIsPassedOn(t *testing.T) {
	f := startPorts(t)
	fields := http.Header{"E2b-Sandbox-Port": {"8000"}, "E2b-Sandbox-Id": {f.sandbox.SandboxID}}
	for path, options := range map[string]*websocket.DialOptions{
		"/ws":     {Host: "8000-" + f.sandbox.SandboxID + "." + domain},
		"/e2b/ws": {HTTPHeader: fields},
	} {
		options.Subprotocols, options.HTTPClient = []string{"chat"}, f.client
		conn, _, err := websocket.Dial(t.Context(), "ws://"+f.address+path, options) //nolint:bodyclose // Dial has read it
		assert.NilError(t, err)
		assert.Equal(t, conn.Subprotocol(), "chat")
		assert.NilError(t, conn.Write(t.Context(), websocket.MessageText, []byte("hello")))
		_, text, err := conn.Read(t.Context())
		assert.NilError(t, err)
		assert.Equal(t, string(text), "/ws hello")
		assert.NilError(t, conn.Close(websocket.StatusNormalClosure, ""))
	}
}

func TestPortsThatTakeAToken(t *testing.T) {
	f := startPorts(t)
	public := f.sandbox
	private := f.create(`{"templateID":"base","secure":true,"network":{"allowPublicTraffic":false}}`)
	var detail struct {
		Network struct{ AllowPublicTraffic *bool }
	}
	f.do(http.MethodGet, "/sandboxes/"+private.SandboxID, "", apiKey).wants(http.StatusOK).decode(&detail)
	assert.Assert(t, detail.Network.AllowPublicTraffic != nil && !*detail.Network.AllowPublicTraffic)

	refusedAt := func(id string, headers ...string) {
		t.Helper()
		for _, a := range []answer{
			f.at("8000-"+id+"."+domain, http.MethodGet, "/", "", headers...),
			f.do(http.MethodGet, "/", "", append(headers, "E2b-Sandbox-Port: 8000", "E2b-Sandbox-Id: "+id)...),
		} {
			var body struct {
				Code      int
				SandboxID string `json:"sandboxId"`
			}
			a.refuses(http.StatusForbidden, sdk.CodeNotAllowed)
			a.decode(&body)
			assert.Equal(t, body.Code, http.StatusForbidden)
			assert.Equal(t, body.SandboxID, id)
		}
	}
	refusedAt(private.SandboxID)
	refusedAt(private.SandboxID, apiKey, "X-Access-Token: "+private.EnvdAccessToken)
	refusedAt(private.SandboxID, "E2b-Traffic-Access-Token: "+public.TrafficAccessToken)
	refusedAt(private.SandboxID, "E2b-Traffic-Access-Token: "+private.EnvdAccessToken)
	token := "E2b-Traffic-Access-Token: " + private.TrafficAccessToken
	f.at("8000-"+private.SandboxID+"."+domain, http.MethodGet, "/", "", token).wants(http.StatusOK)
	f.do(http.MethodGet, "/", "", token, "E2b-Sandbox-Port: 8000", "E2b-Sandbox-Id: "+private.SandboxID).wants(http.StatusOK)

	// The operator may want it of all, from one moment to the next.
	f.server.SetFrontDoors(map[string]frontdoor.Settings{"e2b": {Path: "/e2b", Domain: domain, Templates: map[string]string{"base": ""}}})
	refusedAt(public.SandboxID)
	refusedAt("00000000000000000000") // which is told of one that there is not, too
	refusedAt("00000000000000000000", token)
	f.at("8000-"+public.SandboxID+"."+domain, http.MethodGet, "/", "", "E2b-Traffic-Access-Token: "+public.TrafficAccessToken).wants(http.StatusOK)
	f.do(http.MethodPost, "/v2/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":true}}`, apiKey).wants(http.StatusBadRequest)
}

func TestPortsThatDoNotAnswer(t *testing.T) {
	f := startPorts(t)
	gone := func(id string, port int) {
		t.Helper()
		for _, a := range []answer{
			f.at(fmt.Sprintf("%d-%s.%s", max(port, 1), id, domain), http.MethodGet, "/", ""),
			f.do(http.MethodGet, "/", "", fmt.Sprint("E2b-Sandbox-Port: ", max(port, 1)), "E2b-Sandbox-Id: "+id),
		} {
			var body struct {
				SandboxID, Message string
				Port               int
				Code               int
			}
			a.wants(http.StatusBadGateway).decode(&body)
			assert.Equal(t, body.SandboxID, id)
			assert.Equal(t, body.Port, port)
			assert.Equal(t, body.Code, http.StatusBadGateway)
			assert.Assert(t, body.Message != "")
		}
	}
	gone(f.sandbox.SandboxID, 65535)
	gone("00000000000000000000", 0)
	var own struct{ ID string }
	f.at(f.address, http.MethodPost, "/api/v1/instances", `{}`, apiKey).wants(http.StatusCreated).decode(&own)
	gone(own.ID[strings.LastIndex(own.ID, ":")+1:], 0) // it was made by another API
	f.do(http.MethodPost, "/sandboxes/"+f.sandbox.SandboxID+"/pause", "{}", apiKey).wants(http.StatusNoContent)
	gone(f.sandbox.SandboxID, 0)
	f.do(http.MethodDelete, "/sandboxes/"+f.sandbox.SandboxID, "", apiKey).wants(http.StatusNoContent)
	gone(f.sandbox.SandboxID, 0)
}

func TestTheRoutesOfTheDoorAtHostsOfItsDomain(t *testing.T) {
	f := startPorts(t)
	id := f.sandbox.SandboxID
	access := "X-Access-Token: " + f.sandbox.EnvdAccessToken
	f.at("api."+domain, http.MethodGet, "/health", "").wants(http.StatusOK)
	f.at("API."+domain+".:8443", http.MethodGet, "/sandboxes/"+id, "", apiKey).wants(http.StatusOK)
	f.at("api."+domain, http.MethodGet, "/sandboxes/"+id, "").wants(http.StatusUnauthorized)
	f.at("api."+domain, http.MethodGet, "/e2b/sandboxes/"+id, "", apiKey).wants(http.StatusNotFound)

	envd, interpreter := "49983-"+id+"."+domain, "49999-"+id+"."+domain
	f.at(envd, http.MethodGet, "/health", "").wants(http.StatusNoContent)
	f.at(interpreter, http.MethodGet, "/health", "").wants(http.StatusNoContent)
	f.at("49983-00000000000000000000."+domain, http.MethodGet, "/health", "").wants(http.StatusBadGateway)
	f.at(envd, http.MethodPost, "/filesystem.Filesystem/MakeDir", `{"path":"/home/user/d"}`, access).wants(http.StatusOK)
	f.at(envd, http.MethodPost, "/filesystem.Filesystem/Stat", `{"path":"/home/user/d"}`, access, "E2b-Sandbox-Id: "+id, "E2b-Sandbox-Port: 49983").wants(http.StatusOK)
	f.at(interpreter, http.MethodPost, "/execute", `{"code":"print"}`, "E2b-Traffic-Access-Token: "+f.sandbox.TrafficAccessToken).wants(http.StatusOK)
	f.at(interpreter, http.MethodPost, "/contexts", `{}`, "E2b-Traffic-Access-Token: "+f.sandbox.TrafficAccessToken).wants(http.StatusOK)
	// A host alone lets nobody in, and each has what is its own.
	f.at(envd, http.MethodPost, "/filesystem.Filesystem/Stat", `{"path":"/home/user/d"}`).wants(http.StatusUnauthorized)
	f.at(interpreter, http.MethodPost, "/execute", `{"code":"print"}`).wants(http.StatusUnauthorized)
	f.at(envd, http.MethodPost, "/execute", `{"code":"print"}`, access).wants(http.StatusNotFound)
	f.at(interpreter, http.MethodGet, "/files?path=x", "", access).wants(http.StatusNotFound)
	f.at(envd, http.MethodGet, "/sandboxes", "", apiKey).wants(http.StatusNotFound)

	other := f.create(`{"templateID":"base"}`)
	f.at("49983-"+other.SandboxID+"."+domain, http.MethodPost, "/filesystem.Filesystem/Stat", `{"path":"/home/user"}`, access).wants(http.StatusUnauthorized)
}

func TestHostsThatLeadNowhere(t *testing.T) {
	f := startPorts(t)
	id := f.sandbox.SandboxID
	access := "X-Access-Token: " + f.sandbox.EnvdAccessToken
	other := f.create(`{"templateID":"base"}`)
	for name, test := range map[string]struct {
		host    string
		headers []string
	}{
		"port 0":                               {host: "0-" + id},
		"a port that is too large":             {host: "65536-" + id},
		"a huge one":                           {host: "99999999999999999999999-" + id},
		"one with a zero before it":            {host: "08000-" + id},
		"envd's with one":                      {host: "049983-" + id},
		"a sign":                               {host: "+8000-" + id},
		"none":                                 {host: "-" + id},
		"the sandbox alone":                    {host: id},
		"no sandbox":                           {host: "8000-"},
		"a label before it":                    {host: "x.8000-" + id},
		"one before the API's":                 {host: "x.api"},
		"another name":                         {host: "www"},
		"another sandbox in the header":        {"8000-" + id, []string{"E2b-Sandbox-Id: " + other.SandboxID}},
		"another port in the header":           {"8000-" + id, []string{"E2b-Sandbox-Port: 8001"}},
		"envd's port in the header":            {"8000-" + id, []string{"E2b-Sandbox-Port: 49983"}},
		"another sandbox in envd's":            {"49983-" + id, []string{"E2b-Sandbox-Id: " + other.SandboxID, access}},
		"a program in envd's header":           {"49983-" + id, []string{"E2b-Sandbox-Id: " + id, "E2b-Sandbox-Port: 8000", access}},
		"the interpreter's port in envd's":     {"49983-" + id, []string{"E2b-Sandbox-Port: 49999", access}},
		"an empty field beside the host":       {"8000-" + id, []string{"E2b-Sandbox-Id: "}},
		"fields with a port that is too large": {"sandbox", []string{"E2b-Sandbox-Id: " + id, "E2b-Sandbox-Port: 65536"}},
		"fields with no number":                {"sandbox", []string{"E2b-Sandbox-Id: " + id, "E2b-Sandbox-Port: x"}},
		"fields with a sandbox in capitals":    {"sandbox", []string{"E2b-Sandbox-Id: " + strings.ToUpper(id), "E2b-Sandbox-Port: 8000"}},
	} {
		t.Run(name, func(t *testing.T) {
			paths := []string{"/files?path=x", "/health"}
			if !strings.HasPrefix(test.host, "49983-") {
				paths = append(paths, "/api/v1/instances", "/healthz", "/e2b/sandboxes", "/openapi.json")
			}
			for _, path := range paths {
				f.at(test.host+"."+domain, http.MethodGet, path, "", append(test.headers, apiKey)...).refuses(http.StatusBadRequest, sdk.CodeInvalidRequest)
			}
		})
	}
	// Both are sent twice: whichever somebody looks at, it is not this one.
	for _, fields := range []string{
		"E2b-Sandbox-Port: 8000\r\nE2b-Sandbox-Port: 8001\r\nE2b-Sandbox-Id: " + id,
		"E2b-Sandbox-Port: 8000\r\nE2b-Sandbox-Id: " + other.SandboxID + "\r\nE2b-Sandbox-Id: " + id,
	} {
		got, err := frontdoortest.Exchange(f.address, "GET /e2b/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+fields+"\r\n\r\n", nil)
		assert.NilError(t, err)
		assert.Assert(t, strings.HasPrefix(got, "HTTP/1.1 400 "), got)
	}
	for _, host := range []string{domain, "8000-" + id + "." + domain + ".evil.test", "8000-" + id + ".evil.test", "8000-" + id + domain, "8000-" + id, "x" + domain} {
		f.at(host, http.MethodGet, "/healthz", "").wants(http.StatusOK) // the broker's own
		f.at(host, http.MethodGet, "/", "").wants(http.StatusNotFound)
	}
	// Who closes the door closes its hosts.
	f.server.SetFrontDoors(nil)
	for _, host := range []string{"8000-" + id, "49983-" + id, "api", "sandbox"} {
		f.at(host+"."+domain, http.MethodGet, "/health", "").wants(http.StatusNotFound)
		f.at(host+"."+domain, http.MethodGet, "/healthz", "").wants(http.StatusOK)
	}
}
