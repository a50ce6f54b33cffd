package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	streamPath = "/test/x/stream"
	hidden     = "GET /api/v1/providers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n\r\n"
)

// startStream is start with a route of the test's own.
func startStream(t *testing.T, handle func(w http.ResponseWriter, r *http.Request) error) *fixture {
	t.Helper()
	return start(t, func(_ *api.Options, f *fixture) {
		f.newServer = func(opts api.Options) (*api.Server, error) { return api.NewServerWithStream(opts, handle) }
	})
}

// ended asserts that nothing more comes.
func (f *fixture) ended(r *bufio.Reader) {
	f.t.Helper()
	rest, err := io.ReadAll(r)
	assert.NilError(f.t, err)
	assert.Equal(f.t, string(rest), "")
}

func TestNothingBehindABodyThatWasNotReadIsARequest(t *testing.T) {
	half := func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.CopyN(io.Discard, r.Body, 100)
		_, err := io.WriteString(w, "half")
		return err
	}
	handlers := map[string]struct {
		handle func(w http.ResponseWriter, r *http.Request) error
		token  string
		status int
	}{
		"a stranger":                    {half, "wrong", http.StatusUnauthorized},
		"a handler that reads a part":   {half, "acme-token", http.StatusOK},
		"a handler that reads nothing":  {func(w http.ResponseWriter, _ *http.Request) error { _, err := io.WriteString(w, "x"); return err }, "acme-token", http.StatusOK},
		"a handler that refuses":        {func(http.ResponseWriter, *http.Request) error { return sdk.Errorf(sdk.CodeNotFound, "no such thing") }, "acme-token", http.StatusNotFound},
		"a handler that panics":         {func(http.ResponseWriter, *http.Request) error { panic("s3cret") }, "acme-token", http.StatusInternalServerError},
		"a handler that reads it whole": {func(w http.ResponseWriter, r *http.Request) error { _, err := io.Copy(w, r.Body); return err }, "acme-token", http.StatusOK},
	}
	filler := strings.Repeat("x", 8<<10)
	bodies := map[string]string{
		"with a length":                fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(filler)+len(hidden), filler+hidden),
		"with 10 GiB declared":         "Content-Length: 10737418240\r\n\r\n" + filler + hidden,
		"in chunks":                    fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(filler)+len(hidden), filler+hidden),
		"in chunks, and a request":     fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n%s", len(filler), filler, hidden),
		"with a length, and a request": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(filler), filler+hidden),
		"in chunks that are broken":    fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nzz\r\n%s", len(filler), filler, hidden),
		"in chunks without an end":     fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", 10<<30, filler+hidden),
	}
	for handler, h := range handlers {
		t.Run(handler, func(t *testing.T) {
			f := startStream(t, h.handle)
			for body, text := range bodies {
				t.Run("a body "+body, func(t *testing.T) {
					conn, r := f.dial()
					_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s", streamPath, h.token, text)
					assert.NilError(t, err)
					assert.NilError(t, conn.(*net.TCPConn).CloseWrite())
					resp, err := http.ReadResponse(r, nil)
					if err != nil { // a handler that wants all of a body that has no end
						assert.Equal(t, handler, "a handler that reads it whole")
						return
					}
					assert.Equal(t, resp.StatusCode, h.status)
					assert.Check(t, resp.Close)
					echoed, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err == nil {
						assert.Check(t, !strings.Contains(string(echoed), "s3cret"))
						f.ended(r)
					}
				})
			}
			assert.Equal(t, strings.Count(f.log.String(), "route=/api/v1/providers"), 0)
		})
	}
}

func TestABodyThatStreamsHasOneLength(t *testing.T) {
	f := startStream(t, func(http.ResponseWriter, *http.Request) error { panic("not reached") })
	for name, headers := range map[string]string{
		"chunked and with a length": "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
		"a length and chunked":      "content-length: 5\r\ntransfer-encoding: chunked\r\n",
		"encoded twice":             "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
		"two lengths":               "Content-Length: 5\r\nContent-Length: 6\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := f.dial()
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n%s\r\n0\r\n\r\n%s", streamPath, headers, hidden)
			assert.NilError(t, err)
			resp := f.receive(r)
			resp.problem(http.StatusBadRequest, "SB010")
			assert.Assert(t, resp.Close)
			f.ended(r)
		})
	}
}

func TestARequestThatExpectsToBeAskedForItsBody(t *testing.T) {
	f := startStream(t, func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.RawQuery == "unread" {
			return sdk.Errorf(sdk.CodeNotFound, "no such thing")
		}
		_, err := io.Copy(w, r.Body)
		return err
	})
	head := "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	t.Run("is asked when the body is read", func(t *testing.T) {
		conn, r := f.dial()
		_, err := fmt.Fprintf(conn, head, streamPath, "acme-token")
		assert.NilError(t, err)
		assert.Equal(t, f.receive(r).StatusCode, http.StatusContinue)
		_, err = io.WriteString(conn, "hello")
		assert.NilError(t, err)
		assert.Equal(t, f.receive(r).wants(http.StatusOK).text, "hello")
	})
	t.Run("is not asked by a handler that refuses", func(t *testing.T) {
		conn, r := f.dial()
		_, err := fmt.Fprintf(conn, head, streamPath+"?unread", "acme-token")
		assert.NilError(t, err)
		f.receive(r).problem(http.StatusNotFound, "SB013")
	})
	t.Run("is not asked without a token", func(t *testing.T) {
		conn, r := f.dial()
		_, err := fmt.Fprintf(conn, head, streamPath, "wrong")
		assert.NilError(t, err)
		f.receive(r).problem(http.StatusUnauthorized, "SB011")
	})
}

func TestARequestInAPipelineIsHandedOver(t *testing.T) {
	f := startStream(t, func(w http.ResponseWriter, r *http.Request) error { _, err := io.Copy(w, r.Body); return err })
	conn, r := f.dial()
	health := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	_, err := fmt.Fprintf(conn, "%sPOST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nContent-Length: 5\r\n\r\nhello%s", health, streamPath, hidden)
	assert.NilError(t, err)
	f.receive(r).wants(http.StatusOK)
	resp := f.receive(r).wants(http.StatusOK)
	assert.Equal(t, resp.text, "hello")
	assert.Assert(t, resp.Close)
	f.ended(r)
}

func TestALargeBodyStreamsInLittleMemory(t *testing.T) {
	const size = 96 << 20
	f := startStream(t, func(w http.ResponseWriter, r *http.Request) error {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Length", fmt.Sprint(n))
		_, err = io.CopyN(w, zeros{}, n)
		return err
	})
	conn, r := f.dial()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nContent-Length: %d\r\n\r\n", streamPath, size)
	assert.NilError(t, err)
	_, err = io.CopyN(conn, zeros{}, size)
	assert.NilError(t, err)
	resp, err := http.ReadResponse(r, nil)
	assert.NilError(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	assert.NilError(t, err)
	assert.Equal(t, n, int64(size))
	runtime.ReadMemStats(&after)
	assert.Assert(t, after.TotalAlloc-before.TotalAlloc < 16<<20, "%d bytes were allocated in all", after.TotalAlloc-before.TotalAlloc)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWhatIsFlushedArrives(t *testing.T) {
	next := make(chan struct{})
	f := startStream(t, func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Kept", "yes")
		w.WriteHeader(http.StatusAccepted)
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "%d\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
		return nil
	})
	resp, err := f.client.Do(f.request(t.Context(), http.MethodGet, streamPath, ""))
	assert.NilError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusAccepted)
	assert.Equal(t, resp.Header.Get("X-Kept"), "yes")
	assert.Equal(t, resp.Header.Get("X-Request-Id"), "test-request")
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		assert.Assert(t, lines.Scan())
		assert.Equal(t, lines.Text(), fmt.Sprint(i))
		next <- struct{}{}
	}
	assert.Assert(t, !lines.Scan())
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(cmp.Contains(f.log.String(), "tenant=acme method=GET route=/test/{id}/stream status=202"))
	}, poll.WithTimeout(2*time.Minute))
}

func TestHeadOfAStream(t *testing.T) {
	f := startStream(t, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Length", "5")
		_, err := io.WriteString(w, "hello")
		return err
	})
	resp := f.do(http.MethodHead, streamPath, "").wants(http.StatusOK)
	assert.Equal(t, resp.text, "")
	assert.Equal(t, resp.ContentLength, int64(5))
}

func TestAStreamThatFails(t *testing.T) {
	f := startStream(t, func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Query().Has("begun") {
			_, _ = io.WriteString(w, "begun")
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Query().Get("how") {
		case "panic":
			panic("s3cret")
		case "abort":
			panic(http.ErrAbortHandler)
		case "error":
			return sdk.Errorf(sdk.CodeConflict, "somebody else was here")
		}
		return errors.New("s3cret")
	})
	for how, want := range map[string]struct {
		status int
		code   string
	}{
		"panic": {http.StatusInternalServerError, "SB000"},
		"error": {http.StatusConflict, "SB014"},
		"plain": {http.StatusInternalServerError, "SB000"},
	} {
		t.Run(how, func(t *testing.T) {
			resp := f.do(http.MethodGet, streamPath+"?how="+how, "")
			resp.problem(want.status, want.code)
			assert.Check(t, !strings.Contains(resp.text, "s3cret"))
		})
	}
	for _, how := range []string{"panic", "error", "plain", "abort"} {
		t.Run(how+" after the answer began", func(t *testing.T) {
			resp, err := f.client.Do(f.request(t.Context(), http.MethodGet, streamPath+"?begun&how="+how, ""))
			assert.NilError(t, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.Equal(t, string(text), "begun")
		})
	}
	f.do(http.MethodGet, "/healthz", "").wants(http.StatusOK)
}

func TestAConnectionCanBeHijacked(t *testing.T) {
	f := startStream(t, func(w http.ResponseWriter, _ *http.Request) error {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = io.Copy(conn, rw)
		return err
	})
	conn, r := f.dial()
	// The first words come in one piece with the head.
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n\r\nfirst ", streamPath)
	assert.NilError(t, err)
	heard := make([]byte, len("first words"))
	_, err = io.WriteString(conn, "words")
	assert.NilError(t, err)
	_, err = io.ReadFull(r, heard)
	assert.NilError(t, err)
	assert.Equal(t, string(heard), "first words")
	assert.NilError(t, conn.(*net.TCPConn).CloseWrite())
	f.ended(r)
}

func TestAnUpgradeGoesThroughAReverseProxy(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if !assert.Check(t, err) {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Path: %s\r\n\r\n", r.URL.Path)
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, strings.ToUpper(line))
	}))
	t.Cleanup(backend.Close)
	target, err := url.Parse(backend.URL)
	assert.NilError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	f := startStream(t, func(w http.ResponseWriter, r *http.Request) error {
		proxy.ServeHTTP(w, r)
		return nil
	})
	conn, r := f.dial()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", streamPath)
	assert.NilError(t, err)
	resp, err := http.ReadResponse(r, nil)
	assert.NilError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusSwitchingProtocols)
	assert.Equal(t, resp.Header.Get("X-Path"), streamPath)
	_, err = io.WriteString(conn, "hello\n")
	assert.NilError(t, err)
	f.endsWith(r, "HELLO\n")
}

// endsWith asserts what comes before the end.
func (f *fixture) endsWith(r io.Reader, want string) {
	f.t.Helper()
	rest, err := io.ReadAll(r)
	assert.NilError(f.t, err)
	assert.Equal(f.t, string(rest), want)
}

func TestTheContextOfAStreamEndsWithItsClient(t *testing.T) {
	running, ended := make(chan struct{}), make(chan error, 1)
	f := startStream(t, func(_ http.ResponseWriter, r *http.Request) error {
		_, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return err
		}
		close(running)
		<-r.Context().Done()
		ended <- r.Context().Err()
		return r.Context().Err()
	})
	conn, _ := f.dial()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nContent-Length: 5\r\n\r\nhello", streamPath)
	assert.NilError(t, err)
	<-running
	assert.NilError(t, conn.Close())
	assert.ErrorIs(t, <-ended, context.Canceled)
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(cmp.Contains(f.log.String(), `status=499 code=""`)) }, poll.WithTimeout(2*time.Minute))
}

func TestShutdownWaitsForStreamsAndThenEndsThem(t *testing.T) {
	running, finish, ended := make(chan struct{}, 2), make(chan struct{}), make(chan error, 1)
	f := startStream(t, func(w http.ResponseWriter, r *http.Request) error {
		w.(http.Flusher).Flush()
		running <- struct{}{}
		if r.URL.RawQuery == "endless" {
			<-r.Context().Done()
			ended <- r.Context().Err()
			return nil
		}
		<-finish
		_, err := io.WriteString(w, "finished")
		return err
	})
	var resps [2]*http.Response
	for i, query := range []string{"", "?endless"} {
		resp, err := f.client.Do(f.request(t.Context(), http.MethodGet, streamPath+query, ""))
		assert.NilError(t, err)
		defer resp.Body.Close()
		resps[i] = resp
		<-running
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- f.server.Shutdown(ctx) }()
	close(finish)
	text, err := io.ReadAll(resps[0].Body)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "finished")
	assert.Equal(t, len(ended), 0, "the endless stream ended before its time")
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.ErrorIs(t, <-stopped, context.Canceled)
}

func TestAHijackedConnectionIsCutAtTheEnd(t *testing.T) {
	hijacked := make(chan struct{})
	f := startStream(t, func(w http.ResponseWriter, _ *http.Request) error {
		_, _, err := w.(http.Hijacker).Hijack() // and never closed
		close(hijacked)
		return err
	})
	conn, r := f.dial()
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n\r\n", streamPath)
	assert.NilError(t, err)
	<-hijacked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, f.server.Shutdown(ctx), context.Canceled)
	_, err = r.ReadByte()
	assert.Assert(t, err != nil)
}

func TestAClientOfTheOldProtocolGetsItsStream(t *testing.T) {
	f := startStream(t, func(w http.ResponseWriter, _ *http.Request) error {
		_, err := w.Write(bytes.Repeat([]byte("x"), 100<<10))
		return err
	})
	conn, r := f.dial()
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nAuthorization: Bearer acme-token\r\n\r\n", streamPath)
	assert.NilError(t, err)
	resp := f.receive(r).wants(http.StatusOK)
	assert.Equal(t, len(resp.text), 100<<10)
	f.ended(r)
}
