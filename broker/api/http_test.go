package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var instanceIDs = regexp.MustCompile(`acme:s-[a-z0-9]{20}:[a-z0-9]{20}`)

// dial opens a bare connection.
func (f *fixture) dial() (net.Conn, *bufio.Reader) {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.address)
	assert.NilError(f.t, err)
	f.t.Cleanup(func() { _ = conn.Close() })
	assert.NilError(f.t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return conn, bufio.NewReader(conn)
}

func (f *fixture) receive(r *bufio.Reader) answer {
	f.t.Helper()
	resp, err := http.ReadResponse(r, nil)
	assert.NilError(f.t, err)
	return read(f.t, resp)
}

func TestBodiesAboveTheLimitAreRefusedCleanly(t *testing.T) {
	f := start(t)
	for name, size := range map[string]int{
		"one byte above":  maxBody + 1,
		"twice the limit": 2 * maxBody,
		"far above":       16 << 20,
	} {
		t.Run(name, func(t *testing.T) {
			// A client that reads only after it has written everything.
			conn, r := f.dial()
			_, err := fmt.Fprintf(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: acme-token\r\nContent-Length: %d\r\n\r\n", size)
			assert.NilError(t, err)
			_, err = conn.Write(make([]byte, size))
			assert.NilError(t, err)
			resp := f.receive(r)
			resp.problem(http.StatusRequestEntityTooLarge, "SB010")
			assert.Assert(t, resp.Close)
		})
	}
	t.Run("a chunked one", func(t *testing.T) {
		conn, r := f.dial()
		_, err := fmt.Fprint(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: acme-token\r\nTransfer-Encoding: chunked\r\n\r\n")
		assert.NilError(t, err)
		_, err = fmt.Fprintf(conn, "%x\r\n%s\r\n0\r\n\r\n", 1<<20, make([]byte, 1<<20))
		assert.NilError(t, err)
		f.receive(r).problem(http.StatusRequestEntityTooLarge, "SB010")
	})
	t.Run("exactly the limit is read", func(t *testing.T) {
		body := `{"code":"1","language":"python"}`
		f.do(http.MethodPost, "/api/v1/execute", body+strings.Repeat(" ", maxBody-len(body))).wants(http.StatusOK)
	})
}

func TestALargeBodyIsNotReadFromAStranger(t *testing.T) {
	f := start(t)
	for name, headers := range map[string]string{
		"without a token":              "Content-Length: %d",
		"with a wrong token":           "Authorization: Bearer wrong\r\nContent-Length: %d",
		"who waits to be asked for it": "Expect: 100-continue\r\nContent-Length: %d",
	} {
		t.Run(name, func(t *testing.T) {
			// The body never comes, so who waits for it does not answer.
			conn, r := f.dial()
			_, err := fmt.Fprintf(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\n"+headers+"\r\n\r\n", maxBody)
			assert.NilError(t, err)
			resp := f.receive(r)
			if resp.StatusCode == http.StatusContinue {
				resp = f.receive(r)
			}
			resp.problem(http.StatusUnauthorized, "SB011")
			assert.Assert(t, resp.Close)
		})
	}
}

func TestAFormIsNotParsed(t *testing.T) {
	f := start(t)
	f.do(http.MethodPost, "/api/v1/execute", "no form at all", "Content-Type: multipart/form-data; boundary=x").
		problem(http.StatusUnsupportedMediaType, "SB010")
}

func TestABodyHasOneLength(t *testing.T) {
	f := start(t)
	for name, headers := range map[string]string{
		"chunked and with a length": "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"a length and chunked":      "content-length: 5\r\ntransfer-encoding: chunked\r\n",
		"encoded twice":             "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
		"two lengths":               "Content-Length: 5\r\nContent-Length: 6\r\n",
		"the same length twice":     "Content-Length: 5\r\nContent-Length: 5\r\n",
		"a list of lengths":         "Content-Length: 5, 5\r\n",
		"a length with a sign":      "Content-Length: +5\r\n",
		"a space before the colon":  "Content-Length : 5\r\n",
		"a tab before the colon":    "Content-Length\t: 5\r\n",
		"an encoding with a space":  "Transfer-Encoding : chunked\r\n",
		"a folded first line":       " Content-Length: 5\r\n",
		"a line that is continued":  "X: a\r\n Content-Length: 5\r\n",
		"a folded encoding":         "Transfer-Encoding:\r\n chunked\r\n",
		"an encoding within a line": "X: a\rTransfer-Encoding: chunked\r\n",
		"lines without CR":          "X: a\nContent-Length: 5\n",
		"encoded in two ways":       "Transfer-Encoding: gzip, chunked\r\n",
		"not encoded, as it says":   "Transfer-Encoding: identity\r\n",
		"encoded in quotes":         "Transfer-Encoding: \"chunked\"\r\n",
		"a line without a colon":    "Content-Length\r\n",
		"a nameless line":           ": 5\r\n",
		"two hosts":                 "Host: y\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := f.dial()
			_, err := fmt.Fprintf(conn, "POST /api/v1/instances HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n%s\r\n0\r\n\r\n", headers)
			assert.NilError(t, err)
			resp := f.receive(r)
			resp.problem(http.StatusBadRequest, "SB010")
			assert.Assert(t, resp.Close)
		})
	}
	assert.Check(t, cmp.Len(f.provider.Created(), 0))
}

func TestAnEarlyAnswerDoesNotMakeARequestOfTheBody(t *testing.T) {
	f := start(t)
	smuggled := "GET /api/v1/providers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n\r\n"
	body := strings.Repeat("x", 8<<10) + smuggled
	conn, r := f.dial()
	_, err := fmt.Fprintf(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	assert.NilError(t, err)
	f.receive(r).problem(http.StatusUnauthorized, "SB011")
	// The connection lives on, and the next answer is that of the next request.
	_, err = fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	assert.NilError(t, err)
	resp := f.receive(r).wants(http.StatusOK)
	assert.Check(t, cmp.Contains(resp.text, `"ok"`))
	assert.Equal(t, r.Buffered(), 0)
	assert.Equal(t, strings.Count(f.log.String(), "route=/api/v1/providers"), 0)
}

func TestWhatIsNotHTTPIsRefusedAsAProblem(t *testing.T) {
	f := start(t)
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"garbage":                    {"s3cret garbage\r\n\r\n", 400},
		"a method that nobody knows": {"FROBNICATE /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		"headers that are too large": {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Big: " + strings.Repeat("x", 20<<10) + "\r\n\r\n", 431},
		"a length that is no number": {"POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: s3cret\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := f.dial()
			_, err := fmt.Fprint(conn, test.request)
			assert.NilError(t, err)
			resp := f.receive(r)
			resp.problem(test.status, "SB010")
			assert.Check(t, !strings.Contains(resp.text, "s3cret"))
		})
	}
}

func TestMethodsBesideGetAndPost(t *testing.T) {
	f := start(t)
	resp := f.do(http.MethodHead, "/healthz", "").wants(http.StatusOK)
	assert.Equal(t, resp.text, "")
	resp = f.do(http.MethodOptions, "/api/v1/instances", "").wants(http.StatusNoContent)
	assert.Equal(t, resp.Header.Get("Allow"), "GET, HEAD, POST")
	f.do(http.MethodOptions, "/nowhere", "").problem(http.StatusNotFound, "SB013")
	f.do(http.MethodDelete, "/healthz", "").problem(http.StatusMethodNotAllowed, "SB010")
	// Front proxies must not see other routes than we do.
	for _, path := range []string{"/api/v1/instances/", "/API/v1/instances", "/api//v1/instances", "/documents", "/", "/a%2Fb", "/x%3F", "/api/v1%2Finstances", "/api%2fv1/instances"} {
		f.do(http.MethodGet, path, "").problem(http.StatusNotFound, "SB013")
	}
}

func TestRequestIDs(t *testing.T) {
	f := start(t)
	for name, test := range map[string]struct {
		sent string
		kept bool
	}{
		"a good one is kept":                  {"abc_DEF-123", true},
		"the longest one is kept":             {strings.Repeat("a", 64), true},
		"a longer one is not":                 {strings.Repeat("a", 65), false},
		"one that would forge the log is not": {"x status=200", false},
		"an empty one is not":                 {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			resp := f.do(http.MethodGet, "/api/v1/providers", "", "X-Request-Id: "+test.sent).wants(http.StatusOK)
			got := resp.Header.Get("X-Request-Id")
			assert.Equal(t, got == test.sent, test.kept)
			assert.Check(t, regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`).MatchString(got))
			assert.Check(t, cmp.Contains(f.log.String(), "request_id="+got))
		})
	}
}

func TestTheLogHasOneLineForARequestAndNoSecrets(t *testing.T) {
	f := start(t)
	f.do(http.MethodPost, "/api/v1/execute", `{"code":"s3cret-code","language":"python","arguments":{"a":"s3cret-argument"},"env":{"A":"s3cret-env"}}`).wants(http.StatusOK)
	f.do(http.MethodGet, "/api/v1/instances/acme:s1:aaaaaaaaaaaaaaaaaaaa", "").wants(http.StatusNotFound)
	log := f.log.String()
	assert.Equal(t, strings.Count(log, "method=POST"), 1)
	assert.Check(t, cmp.Contains(log, `request: request_id=test-request tenant=acme method=POST route=/api/v1/execute status=200 code="" duration=`))
	assert.Check(t, cmp.Contains(log, `route=/api/v1/instances/{id} status=404 code=SB013`))
	for _, secret := range []string{"s3cret", "acme-token"} {
		assert.Check(t, !strings.Contains(log, secret))
	}
}

func TestShutdownLetsARequestFinish(t *testing.T) {
	f := start(t)
	running, finish := make(chan struct{}), make(chan struct{})
	f.provider.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		close(running)
		<-finish
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}
	type outcome struct {
		resp *http.Response
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		resp, err := f.client.Do(f.request(context.Background(), http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`)) //nolint:bodyclose // read closes it
		done <- outcome{resp, err}
	}()
	<-running
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		stopped <- f.server.Shutdown(ctx)
	}()
	close(finish)
	got := <-done
	assert.NilError(t, got.err)
	read(t, got.resp).wants(http.StatusOK)
	f.client.CloseIdleConnections()
	assert.NilError(t, <-stopped)
}

// Nobody knows where the body of such a request ends, so nobody waits for it.
func TestABodyWithoutAnEndIsNotWaitedFor(t *testing.T) {
	f := start(t)
	for name, headers := range map[string]string{
		"a folded length":    "Content-Length:\r\n 500\r\n",
		"a folded encoding":  "Transfer-Encoding:\r\n chunked\r\n",
		"both":               "Content-Length: 500\r\nTransfer-Encoding: chunked\r\n",
		"one that asks":      "X : y\r\nExpect: 100-continue\r\nContent-Length: 500\r\n",
		"a length behind LF": "X: y\nContent-Length: 500\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := f.dial()
			_, err := fmt.Fprintf(conn, "POST /api/v1/instances HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n%s\r\n", headers)
			assert.NilError(t, err)
			f.receive(r).problem(http.StatusBadRequest, "SB010")
		})
	}
}
