package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
)

// A client, or a proxy, that ends its own side only would take an empty answer with 200
// for a success, of a file that was cut for example.
func TestWhoEndsOnlyItsOwnSideIsNotToldOfASuccess(t *testing.T) {
	for name, length := range map[string]int{"amid a body": 100, "behind it": 5} {
		t.Run(name, func(t *testing.T) {
			f := startStream(t, func(_ http.ResponseWriter, r *http.Request) error {
				_, err := io.Copy(io.Discard, r.Body)
				assert.Check(t, cmp.Equal(err != nil, length > 5))
				<-r.Context().Done()
				return r.Context().Err()
			})
			conn, r := f.dial()
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nContent-Length: %d\r\n\r\nhello", streamPath, length)
			assert.NilError(t, err)
			assert.NilError(t, conn.(*net.TCPConn).CloseWrite())
			f.ended(r)
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(cmp.Contains(f.log.String(), "status=499")) }, poll.WithTimeout(2*time.Minute))
		})
	}
}
