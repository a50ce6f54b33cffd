package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Whoever answers for the broker does not choose who else gets the token.
func TestTheTokenFollowsNoRedirection(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	for _, broker := range []*client.Client{client.New(first.URL, "secret"), client.New(first.URL, "secret").Over(first.Client())} {
		_, err := broker.Usage(t.Context())
		assert.Check(t, err != nil)
	}
	assert.Equal(t, asked, 0)
}
