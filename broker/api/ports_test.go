package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

var previewKey = []byte("0123456789abcdef0123456789abcdef")

// startPorts starts a server whose instances have a program on port 8000.
func startPorts(t *testing.T, program http.HandlerFunc) (f *fixture, id string) {
	t.Helper()
	srv := httptest.NewServer(program)
	t.Cleanup(srv.Close)
	f = start(t, func(o *api.Options, f *fixture) {
		o.PreviewKey = previewKey
		f.provider.OnDialPort = func(ctx context.Context, _ string, port uint16) (net.Conn, error) {
			if port != 8000 {
				return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens on port %d of the instance", port)
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", srv.Listener.Addr().String())
		}
	})
	return f, f.create(`{"session_id": "s"}`).ID
}

// makePreview returns the path of a link.
func (f *fixture) makePreview(id, body string) client.Preview {
	f.t.Helper()
	var p client.Preview
	f.do(http.MethodPost, fmt.Sprintf("/api/v1/instances/%s/ports/8000/preview", id), body).wants(http.StatusCreated).decode(&p)
	return p
}

func TestARequestIsPassedOnToAPort(t *testing.T) {
	f, id := startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err)
		w.Header().Set("X-Seen", r.Method+" "+r.RequestURI+" "+r.Host+" "+r.Header.Get("X-Forwarded-Prefix"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte("you said "), body...))
	})
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"} {
		t.Run(method, func(t *testing.T) {
			body, want := "", "you said "
			if method == "POST" || method == "PUT" || method == "PATCH" {
				body, want = "hello", "you said hello"
			}
			if method == "HEAD" {
				want = ""
			}
			resp := f.do(method, "/api/v1/instances/"+id+"/ports/8000/a/b?c=d&c=e", body).wants(http.StatusTeapot)
			assert.Equal(t, resp.text, want)
			assert.Equal(t, resp.Header.Get("X-Seen"), method+" /a/b?c=d&c=e localhost:8000 /api/v1/instances/"+id+"/ports/8000")
			assert.DeepEqual(t, resp.Header.Values("X-Request-Id"), []string{"test-request"})
		})
	}
	t.Run("the path stays as it is", func(t *testing.T) {
		for _, path := range []string{"/../../../../providers", "/a%2Fb", "/%2e%2e/%2e%2e", "//x", "/a;b", "/preview", "/previe%77?x", "/ports/1/y"} {
			conn, r := f.dial()
			_, err := fmt.Fprintf(conn, "GET /api/v1/instances/%s/ports/8000%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n\r\n", strings.ReplaceAll(id, ":", "%3A"), path)
			assert.NilError(t, err)
			assert.Check(t, is.Equal(strings.Fields(f.receive(r).wants(http.StatusTeapot).Header.Get("X-Seen"))[1], path))
		}
	})
	t.Run("without a slash it leads to one with it", func(t *testing.T) {
		client := *f.client
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		resp, err := client.Do(f.request(t.Context(), http.MethodGet, "/api/v1/instances/"+id+"/ports/8000?a=b", ""))
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, resp.StatusCode, http.StatusPermanentRedirect)
		assert.Equal(t, resp.Header.Get("Location"), "/api/v1/instances/"+id+"/ports/8000/?a=b")
	})
	t.Run("an escaped slash in the broker's own part is no slash", func(t *testing.T) {
		for _, path := range []string{"/api/v1/instances/" + id + "/ports/8000%2Fx", "/api/v1/instances/a%2F" + id + "/ports/8000/x", "/api/v1%2Finstances/" + id + "/ports/8000/x"} {
			f.do(http.MethodGet, path, "").problem(http.StatusNotFound, "SB013")
		}
	})
}

func TestRequestsThatCannotBePassedOn(t *testing.T) {
	f, id := startPorts(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	other := f.do(http.MethodPost, "/api/v1/instances", `{"provider": "second"}`).wants(http.StatusCreated)
	var second client.Instance
	other.decode(&second)
	for name, test := range map[string]struct {
		path, header string
		status       int
		code         string
	}{
		"nobody listens":        {id + "/ports/8001/", "", http.StatusBadGateway, "SB003"},
		"port 0":                {id + "/ports/0/", "", http.StatusUnprocessableEntity, "SB010"},
		"port 65536":            {id + "/ports/65536/", "", http.StatusUnprocessableEntity, "SB010"},
		"port 08000":            {id + "/ports/08000/", "", http.StatusUnprocessableEntity, "SB010"},
		"port +8000":            {id + "/ports/+8000/", "", http.StatusUnprocessableEntity, "SB010"},
		"a port that is a name": {id + "/ports/http/", "", http.StatusUnprocessableEntity, "SB010"},
		"no such instance":      {"acme:s:none/ports/8000/", "", http.StatusNotFound, "SB013"},
		"another tenant's":      {id + "/ports/8000/", "Authorization: Bearer umbrella-token", http.StatusNotFound, "SB013"},
		"no token":              {id + "/ports/8000/", "Authorization: ", http.StatusUnauthorized, "SB011"},
		"a provider without":    {second.ID + "/ports/8000/", "", http.StatusNotImplemented, "SB015"},
	} {
		t.Run(name, func(t *testing.T) {
			headers := []string{}
			if test.header != "" {
				headers = append(headers, test.header)
			}
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				f.do(method, "/api/v1/instances/"+test.path, "body", headers...).problem(test.status, test.code)
			}
			f.do(http.MethodPost, "/api/v1/instances/"+test.path+"preview", `{}`, headers...).wants(map[bool]int{true: http.StatusCreated, false: test.status}[test.code == "SB003"])
		})
	}
}

func TestTokensStayWithTheBroker(t *testing.T) {
	var seen http.Header
	f, id := startPorts(t, func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() })
	path := "/api/v1/instances/" + id + "/ports/8000/"
	check := func() {
		t.Helper()
		assert.Assert(t, seen != nil)
		for name, values := range seen {
			assert.Check(t, !strings.Contains(strings.Join(values, " "), "acme-token"), name)
		}
		seen = nil
	}
	f.do(http.MethodGet, path, "").wants(http.StatusOK)
	check()
	f.do(http.MethodGet, path, "", "Authorization: ", "X-API-Key: acme-token").wants(http.StatusOK)
	check()
	f.do(http.MethodGet, path, "", "X-API-Key: acme-token").wants(http.StatusOK)
	check()
	handshake := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: chat, bearer.acme-token"}
	f.do(http.MethodGet, path, "", append(handshake, "Authorization: ")...).wants(http.StatusOK)
	check()
	f.do(http.MethodGet, path, "", handshake...).wants(http.StatusOK)
	check()
	f.do(http.MethodGet, f.makePreview(id, `{}`).Path, "", handshake...).wants(http.StatusOK)
	check()
}

func TestAPreviewNeedsNoToken(t *testing.T) {
	f, id := startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1", Path: "/"})
		_, _ = io.WriteString(w, r.RequestURI)
	})
	p := f.makePreview(id, `{"ttl": 60}`)
	assert.Equal(t, p.URL, "http://"+f.address+p.Path)
	assert.Equal(t, p.Port, 8000)
	assert.Assert(t, time.Until(p.ExpiresAt) > 50*time.Second && time.Until(p.ExpiresAt) <= time.Minute)
	resp := f.do(http.MethodGet, p.Path+"a/b?c", "", "Authorization: ").wants(http.StatusOK)
	assert.Equal(t, resp.text, "/a/b?c")
	assert.Equal(t, resp.Header.Get("Content-Security-Policy"), "sandbox allow-scripts allow-forms allow-popups")
	assert.Equal(t, resp.Header.Get("Referrer-Policy"), "no-referrer")
	assert.Equal(t, resp.Header.Get("Set-Cookie"), "sandbox_preview_a=1; Path="+p.Path)
	token := strings.Split(p.Path, "/")[2]
	assert.Assert(t, len(token) > 64)

	f.do(http.MethodDelete, "/api/v1/instances/"+id, "").wants(http.StatusNoContent)
	f.do(http.MethodGet, p.Path, "", "Authorization: ").problem(http.StatusNotFound, "SB013")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Contains(f.log.String(), `tenant=acme method=GET route="/preview/{token}/*" status=404`))
	}, poll.WithTimeout(2*time.Minute))
	assert.Assert(t, !strings.Contains(f.log.String(), token[:16]), "the log has the pattern only")
}

func TestPreviewsThatAreNone(t *testing.T) {
	f, id := startPorts(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	sign := func(key []byte, change func(*preview.Grant)) string {
		g := preview.Grant{Tenant: "acme", InstanceID: id, Port: 8000, Expires: time.Now().Add(time.Hour)}
		change(&g)
		signer, err := preview.NewSigner(key)
		assert.NilError(t, err)
		token, err := signer.Sign(g)
		assert.NilError(t, err)
		return token
	}
	for name, test := range map[string]struct {
		token  string
		status int
		code   string
	}{
		"expired":          {sign(previewKey, func(g *preview.Grant) { g.Expires = time.Now() }), http.StatusForbidden, "SB012"},
		"of another key":   {sign([]byte(strings.Repeat("x", 32)), func(*preview.Grant) {}), http.StatusForbidden, "SB012"},
		"not a token":      {"x", http.StatusForbidden, "SB012"},
		"another tenant":   {sign(previewKey, func(g *preview.Grant) { g.Tenant = "umbrella" }), http.StatusNotFound, "SB013"},
		"no such instance": {sign(previewKey, func(g *preview.Grant) { g.InstanceID = "acme:s:none" }), http.StatusNotFound, "SB013"},
		"another port":     {sign(previewKey, func(g *preview.Grant) { g.Port = 8001 }), http.StatusBadGateway, "SB003"},
	} {
		t.Run(name, func(t *testing.T) {
			f.do(http.MethodGet, "/preview/"+test.token+"/", "", "Authorization: ").problem(test.status, test.code)
		})
	}
	assert.Equal(t, f.do(http.MethodPost, "/api/v1/instances/"+id+"/ports/8000/preview", `{"ttl": 86401}`).problem(http.StatusUnprocessableEntity, "SB010").Field, "ttl")
}

func TestAWebSocketGoesThroughAndAStopDoesNotWaitForIt(t *testing.T) {
	ended := make(chan struct{})
	f, id := startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Check(t, is.Equal(r.Header.Get("Upgrade"), "websocket"))
		conn, rw, err := w.(http.Hijacker).Hijack()
		if !assert.Check(t, err) {
			return
		}
		defer close(ended)
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAlt-Svc: x\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	upgrade := func() (net.Conn, *bufio.Reader) {
		conn, r := f.dial()
		_, err := fmt.Fprintf(conn, "GET /api/v1/instances/%s/ports/8000/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id)
		assert.NilError(t, err)
		resp, err := http.ReadResponse(r, nil)
		assert.NilError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, resp.StatusCode, http.StatusSwitchingProtocols)
		assert.Equal(t, resp.Header.Get("Alt-Svc"), "")
		assert.Equal(t, len(resp.Header.Values("X-Request-Id")), 1)
		return conn, r
	}
	conn, r := upgrade()
	_, err := io.WriteString(conn, "hello\n")
	assert.NilError(t, err)
	line, err := r.ReadString('\n')
	assert.NilError(t, err)
	assert.Equal(t, line, "hello\n")

	// A stop does not wait for it.
	f.service.Drain(t.Context())
	f.ended(r)
	<-ended
}

func TestLargeBodiesArePassedOnInLittleMemory(t *testing.T) {
	const size = 96 << 20
	f, id := startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		assert.Check(t, err)
		_, _ = io.CopyN(w, zeros{}, n)
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+f.address+"/api/v1/instances/"+id+"/ports/8000/", io.LimitReader(zeros{}, size))
	assert.NilError(t, err)
	req.Header.Set("Authorization", "Bearer acme-token")
	resp, err := f.client.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusOK)
	n, err := io.Copy(io.Discard, resp.Body)
	assert.NilError(t, err)
	assert.Equal(t, n, int64(size))
	runtime.ReadMemStats(&after)
	assert.Assert(t, after.TotalAlloc-before.TotalAlloc < 16<<20, "%d bytes were allocated in all", after.TotalAlloc-before.TotalAlloc)
}

func TestAClientThatLeavesAPortIsNoticed(t *testing.T) {
	asked, released := make(chan struct{}), make(chan struct{})
	f, id := startPorts(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(released)
	})
	conn, _ := f.dial()
	_, err := fmt.Fprintf(conn, "GET /api/v1/instances/%s/ports/8000/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n\r\n", id)
	assert.NilError(t, err)
	<-asked
	assert.NilError(t, conn.Close())
	<-released
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(f.log.String(), "status=499")) }, poll.WithTimeout(2*time.Minute))
}

func TestAProgramThatBreaksOffIsSeenToDoSo(t *testing.T) {
	f, id := startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/before" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	path := "/api/v1/instances/" + id + "/ports/8000"
	f.do(http.MethodGet, path+"/before", "").problem(http.StatusBadGateway, "SB003")
	resp, err := f.client.Do(f.request(t.Context(), http.MethodGet, path+"/after", ""))
	assert.NilError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, string(text), "begun")
}
