package rest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
)

// slowly gives a byte of x after each wait, without an end.
type slowly time.Duration

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(time.Duration(s))
	return copy(p, "x"), nil
}

func TestReadWhole(t *testing.T) {
	for _, test := range []struct {
		name   string
		body   io.Reader
		length int64
		want   string
		status int
	}{
		{"with a length", strings.NewReader("0123456789"), 10, "0123456789", 0},
		{"without a length", iotest.OneByteReader(strings.NewReader("0123456789")), -1, "0123456789", 0},
		{"empty", strings.NewReader(""), 0, "", 0},
		{"too long by its length", strings.NewReader(""), 11, "", http.StatusRequestEntityTooLarge},
		{"too long without a length", strings.NewReader("0123456789a"), -1, "", http.StatusRequestEntityTooLarge},
		{"cut off", iotest.ErrReader(io.ErrUnexpectedEOF), 10, "", http.StatusBadRequest},
		{"a byte now and then", slowly(25 * time.Second), -1, "", http.StatusRequestTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", test.body)
				r.ContentLength = test.length
				got, err := rest.ReadWhole(r, 10)
				if test.status == 0 {
					assert.NilError(t, err)
					assert.Equal(t, string(got), test.want)
					return
				}
				assert.Check(t, cmp.Equal(rest.RefusalOf(err, "r1").Status, test.status), "%v", err)
			})
		})
	}
}
