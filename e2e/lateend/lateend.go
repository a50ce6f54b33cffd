// Package lateend asks through a proxy with a request whose end the proxy finds only when the
// answer has begun, which happens by chance on a busy machine. net/http closes the body at
// that moment unless the handler has said EnableFullDuplex.
package lateend

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
)

// Exchange is one request and its answer.
type Exchange struct {
	begun, looked chan struct{}
	once          sync.Once
	end           error // of the request's body, as the proxy has found it
}

// New returns an exchange.
func New() *Exchange {
	return &Exchange{begun: make(chan struct{}), looked: make(chan struct{})}
}

const (
	asked = "hello"
	first = "first "
	rest  = "and rest"
)

// Origin is what the proxy is to reach. The rest of its answer comes when the proxy has looked
// for the end of the request.
func (e *Exchange) Origin(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadFull(r.Body, make([]byte, len(asked))); err != nil {
		return
	}
	_, _ = io.WriteString(w, first)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-e.looked:
		_, _ = io.WriteString(w, rest)
	case <-r.Context().Done():
	}
}

// Front is the proxy's handler on the server that the client asks.
func (e *Exchange) Front(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(r.Context()) // the server keeps to the body of its own
		r.Body = &body{r.Body, len(asked), e}
		proxy.ServeHTTP(w, r)
	})
}

type body struct {
	io.ReadCloser
	left     int
	exchange *Exchange
}

func (b *body) Read(p []byte) (int, error) {
	if b.left > 0 {
		n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
		b.left -= n
		return n, err
	}
	<-b.exchange.begun
	n, err := b.ReadCloser.Read(p)
	b.exchange.once.Do(func() {
		b.exchange.end = err
		close(b.exchange.looked)
	})
	return n, err
}

// Ask sends the request, and asserts that all of the answer comes.
func (e *Exchange) Ask(t testing.TB, client *http.Client, url string) {
	t.Helper()
	resp, err := client.Post(url, "text/plain", strings.NewReader(asked))
	close(e.begun)
	assert.NilError(t, err)
	defer resp.Body.Close()
	<-e.looked
	assert.Equal(t, e.end, io.EOF)
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	assert.Equal(t, string(text), first+rest)
}
