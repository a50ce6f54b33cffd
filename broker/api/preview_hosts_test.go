package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
)

// startHosts starts a server whose previews have hosts, with a program on port 8000
// that shows what it is asked. It returns the address of a preview too.
func startHosts(t *testing.T) (f *fixture, id string, at *url.URL) {
	t.Helper()
	f, id = startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			w.Header().Set("Location", "http://localhost:8000/landed")
			w.WriteHeader(http.StatusFound)
			return
		}
		w.Header().Set("Set-Cookie", "a=1; Domain=preview.test; Path=/x")
		w.Header().Set("Service-Worker-Allowed", "/")
		w.Header().Set("X-Accel-Redirect", "/internal")
		w.Header().Set("Referrer-Policy", "unsafe-url")
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err)
		assert.Check(t, json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "path": r.RequestURI, "host": r.Host, "headers": r.Header, "body": string(body)}))
	})
	f.server.SetPreviewHosts(&api.PreviewHosts{Scheme: "https", Domain: "preview.test", Port: "8443"})
	at, err := url.Parse(f.makePreview(id, `{"ttl": 60}`).HostURL)
	assert.NilError(t, err)
	return f, id, at
}

// atHost asks for a path at a host.
func (f *fixture) atHost(method, host, path, body string, headers ...string) answer {
	f.t.Helper()
	req := f.request(f.t.Context(), method, path, body, headers...)
	req.Host = host
	client := *f.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	assert.NilError(f.t, err)
	return read(f.t, resp)
}

func TestAPreviewWithAHostOfItsOwn(t *testing.T) {
	f, id, at := startHosts(t)
	assert.Equal(t, at.Scheme, "https")
	label, domain, _ := strings.Cut(at.Hostname(), ".")
	assert.Equal(t, domain+":"+at.Port(), "preview.test:8443")
	assert.Assert(t, len(label) <= 63)
	type seen struct {
		Method, Path, Host, Body string
		Headers                  http.Header
	}
	for _, host := range []string{at.Host, strings.ToUpper(at.Host), at.Hostname(), at.Hostname() + "."} {
		var s seen
		f.atHost(http.MethodPost, host, "/api/v1/instances/a%2Fb?x=1", "hello", "Authorization: ", "Content-Type: text/plain").wants(http.StatusOK).decode(&s)
		assert.Equal(t, s.Method+" "+s.Path+" "+s.Host+" "+s.Body, "POST /api/v1/instances/a%2Fb?x=1 localhost:8000 hello", "all paths are the program's")
	}
	var s seen
	answer := f.atHost(http.MethodGet, at.Host, "/", "", "Authorization: Bearer acme-token", "X-API-Key: acme-token",
		"Origin: https://"+at.Host, "Referer: https://"+at.Host+"/page?x", "Cookie: mine=1; sandbox_broker_x=2").wants(http.StatusOK)
	answer.decode(&s)
	for name, want := range map[string]string{
		"Authorization": "", "X-Api-Key": "", "Origin": "http://localhost:8000", "Referer": "http://localhost:8000/page?x", "Cookie": "mine=1",
		"X-Forwarded-Host": "", "X-Forwarded-Prefix": "", "X-Forwarded-Proto": "https",
	} {
		assert.Check(t, is.Equal(s.Headers.Get(name), want), name)
	}
	for name, want := range map[string]string{
		"Set-Cookie": "a=1; Path=/x", "Service-Worker-Allowed": "/", "X-Accel-Redirect": "", "Content-Security-Policy": "",
		"Referrer-Policy": "same-origin", "Origin-Agent-Cluster": "?1", "Cache-Control": "private",
	} {
		assert.Check(t, is.Equal(answer.Header.Get(name), want), name)
	}
	for _, foreign := range []string{"https://evil.example", "https://8000-other.preview.test:8443", "http://" + at.Host, "null"} {
		f.atHost(http.MethodGet, at.Host, "/", "", "Origin: "+foreign).wants(http.StatusOK).decode(&s)
		assert.Check(t, is.Equal(s.Headers.Get("Origin"), foreign), "for the program to refuse")
	}
	redirect := f.atHost(http.MethodGet, at.Host, "/redirect", "")
	assert.Equal(t, redirect.Header.Get("Location"), "/landed")

	f.atHost(http.MethodGet, "broker.test", "/api/v1/instances/"+id, "").wants(http.StatusOK)
	f.do(http.MethodDelete, "/api/v1/instances/"+id, "").wants(http.StatusNoContent)
	f.atHost(http.MethodGet, at.Host, "/", "").problem(http.StatusNotFound, "SB013")
}

func TestHostsThatAreNoPreviews(t *testing.T) {
	f, id, at := startHosts(t)
	label, _, _ := strings.Cut(at.Hostname(), ".")
	signer, err := preview.NewSigner([]byte(strings.Repeat("x", preview.KeySize)))
	assert.NilError(t, err)
	ours, err := preview.NewSigner(previewKey)
	assert.NilError(t, err)
	grant := preview.Grant{Tenant: "acme", InstanceID: id, Port: 8000, Expires: time.Now().Add(time.Minute)}
	past, elsewhere := grant, grant
	past.Expires = time.Now().Add(-time.Second)
	elsewhere.InstanceID = "acme:s:none"
	for name, host := range map[string]string{
		"a word":                 "www.preview.test",
		"the API's name":         "api.preview.test",
		"another port":           "8001" + strings.TrimPrefix(label, "8000") + ".preview.test",
		"a label of another key": signer.Label(grant) + ".preview.test",
		"one that has expired":   ours.Label(past) + ".preview.test",
		"no such instance":       ours.Label(elsewhere) + ".preview.test",
		"two labels":             "x." + label + ".preview.test",
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/", "/api/v1/instances", "/healthz", "/openapi.json"} {
				f.atHost(http.MethodGet, host, path, "").problem(http.StatusForbidden, "SB012")
			}
			f.atHost(http.MethodPost, host, "/api/v1/execute", `{"language":"python","code":"1"}`).problem(http.StatusForbidden, "SB012")
		})
	}
	for _, host := range []string{"preview.test", "notpreview.test", label + ".preview.test.evil", label, "xpreview.test"} {
		f.atHost(http.MethodGet, host, "/healthz", "").wants(http.StatusOK) // the API's own
	}
	f.server.SetPreviewHosts(nil)
	f.atHost(http.MethodGet, at.Host, "/healthz", "").wants(http.StatusOK)
	assert.Equal(t, f.makePreview(id, `{}`).HostURL, "")
}

// A proxy in front may pass on a host in a form that we must not take for another one.
func TestFormsOfAHost(t *testing.T) {
	f, _, _ := startHosts(t)
	for host, status := range map[string]int{
		"www.preview.test": http.StatusForbidden, "www.preview.test.": http.StatusForbidden, "WWW.preview.test:": http.StatusForbidden, "www.preview.test.:": http.StatusForbidden,
		".preview.test": http.StatusBadRequest, "www..preview.test": http.StatusBadRequest, "www.preview.test..": http.StatusBadRequest, "www.preview.test..:80": http.StatusBadRequest, ".": http.StatusOK,
		"x:": http.StatusOK, "[::1]:80": http.StatusOK, "[::1]": http.StatusOK,
	} {
		conn, r := f.dial()
		_, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		assert.NilError(t, err)
		assert.Check(t, is.Equal(f.receive(r).StatusCode, status), host)
	}
}

func TestALineThatNamesAnotherHostIsRefused(t *testing.T) {
	f, _, at := startHosts(t)
	for target, status := range map[string]int{
		"http://" + at.Host + "/": http.StatusBadRequest, "http://x/healthz": http.StatusOK, "http://X/healthz": http.StatusOK, "http://x:1/healthz": http.StatusBadRequest,
	} {
		conn, r := f.dial()
		_, err := io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
		assert.NilError(t, err)
		assert.Check(t, is.Equal(f.receive(r).StatusCode, status), target)
	}
}
