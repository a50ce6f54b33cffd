package data_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/data"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

type keys struct{}

func (keys) Get(context.Context) (sign.Credentials, error) { return sign.Credentials{}, nil }
func (keys) Renew(context.Context) bool                    { return false }

func TestPathsAreThoseOfTheService(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.RequestURI
		fmt.Fprint(w, "{}")
	}))
	defer server.Close()
	for _, suffix := range []string{"", "/"} {
		endpoint, err := url.Parse(server.URL + suffix)
		assert.NilError(t, err)
		c := data.New(endpoint, "cn-hangzhou", keys{}, http.DefaultTransport)
		_, _ = c.GetSandbox(t.Context(), "a/b") // only what was asked counts
		assert.Equal(t, <-asked, "GET /sandboxes/a%2Fb")
		_, _ = c.Download(t.Context(), "s", "/a b")
		assert.Equal(t, <-asked, "GET /sandboxes/s/filesystem/download?path=%2Fa+b")
	}
}
