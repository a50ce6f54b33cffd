package handover

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"gotest.tools/v3/assert"
)

// fasthttp hands over nothing of a client that leaves at this moment.
func TestAClientMayLeaveBeforeItIsHandedOver(t *testing.T) {
	s := NewServer(Options{Base: context.Background()})
	client, server := net.Pipe()
	taken := false
	answering := &fasthttp.Server{
		ConnState: func(c net.Conn, state fasthttp.ConnState) {
			if state == fasthttp.StateClosed {
				s.Closed(c)
			}
		},
		Handler: func(fctx *fasthttp.RequestCtx) {
			taken = s.Take(fctx, http.NotFoundHandler()) == nil
			_ = client.Close()
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- answering.ServeConn(server) }()
	_, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	assert.NilError(t, err)
	assert.ErrorIs(t, <-ended, io.ErrClosedPipe)
	assert.Assert(t, taken)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NilError(t, s.Shutdown(ctx))
	s.Close()
}
