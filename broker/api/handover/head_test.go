package handover

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
	"gotest.tools/v3/assert"
)

// The tests of the whole are in package api, over real connections.

func request(t *testing.T, text string) (*fasthttp.RequestCtx, bool) {
	t.Helper()
	fctx := &fasthttp.RequestCtx{}
	fctx.Init(&fasthttp.Request{}, nil, nil)
	return fctx, fctx.Request.Header.Read(bufio.NewReaderSize(strings.NewReader(text), 64<<10)) == nil
}

func TestTheHeadIsWrittenAnew(t *testing.T) {
	s := NewServer(Options{Base: context.Background()})
	defer s.Close()
	for name, test := range map[string]struct {
		hold     bool
		in, want string
	}{
		"without a body": {
			in:   "GET /a%3Ab?c=d HTTP/1.1\r\nHost: x:1\r\nAccept: a\r\nAccept: b\r\nCookie: k=v\r\n\r\n",
			want: "GET /a%3Ab?c=d HTTP/1.1\r\nHost: x:1\r\nAccept: a\r\nAccept: b\r\nCookie: k=v\r\n\r\n",
		},
		"with a body that was held": {
			hold: true,
			in:   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
			want: "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
		},
		"in chunks": {
			hold: true,
			in:   "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n",
			want: "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		},
		"that claims to be held": {
			in:   "POST / HTTP/1.1\r\nHost: x\r\nX-Sandbox-Broker-Held: x 5\r\n\r\n",
			want: "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
		},
		"with a host that is none, and a name that is none": {
			in:   "GET / HTTP/1.0\r\nHost: a b\r\nX y: z\r\n\r\n",
			want: "GET / HTTP/1.0\r\nHost: \r\nConnection: close\r\n\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fctx, ok := request(t, test.in)
			assert.Assert(t, ok)
			if test.hold {
				s.Hold(&fctx.Request.Header)
			}
			assert.Equal(t, s.Held(&fctx.Request.Header), test.hold)
			head, err := s.headOf(fctx)
			assert.NilError(t, err)
			text, err := io.ReadAll(head)
			assert.NilError(t, err)
			assert.Equal(t, string(text), test.want)
		})
	}
}

// FuzzHead looks for a request that net/http reads in another way than fasthttp,
// or of which something is left over.
func FuzzHead(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /a?b HTTP/1.0\r\nHost: x\r\nContent-Length: 3\r\nX:\r\n\r\n",
		"POST /a HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n",
		"PUT http://h/p HTTP/1.1\r\nA: b\r\n c\r\nCookie: a=b; c\r\nConnection: Upgrade\r\n\r\n",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	s := NewServer(Options{Base: context.Background()})
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, text string, hold bool) {
		fctx, ok := request(t, text)
		if !ok {
			t.Skip("it is no request")
		}
		length := fctx.Request.Header.ContentLength()
		if hold {
			s.Hold(&fctx.Request.Header)
		}
		head, err := s.headOf(fctx)
		if err != nil {
			t.Skip("it has no head")
		}
		written, err := io.ReadAll(head)
		assert.NilError(t, err)
		r := bufio.NewReader(bytes.NewReader(written))
		req, err := http.ReadRequest(r)
		assert.NilError(t, err, "%q", written)
		assert.Equal(t, r.Buffered(), 0, "%q", written)
		assert.Equal(t, req.Method, string(fctx.Request.Header.Method()))
		assert.Equal(t, req.RequestURI, string(fctx.Request.Header.RequestURI()))
		switch {
		case !hold || length == 0 || length < chunked:
			assert.Equal(t, req.ContentLength, int64(0))
		case length == chunked && req.ProtoAtLeast(1, 1):
			assert.DeepEqual(t, req.TransferEncoding, []string{"chunked"})
		case length > 0:
			assert.Equal(t, req.ContentLength, int64(length))
		}
	})
}
