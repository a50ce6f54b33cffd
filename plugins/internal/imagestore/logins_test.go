package imagestore_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	userOfRegistry = "builder"
	secretOfTests  = "s3cret/with+signs"
	tokenOfTests   = "a-token"
)

// privateRegistry is one that asks for a login, and has an image private:1.
func privateRegistry(t testing.TB, challenge func(host string) string, admits func(*http.Request) bool) string {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var open atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, basic := req.BasicAuth()
		switch {
		case req.URL.Path == "/token" && basic && user == userOfRegistry && password == secretOfTests:
			_, _ = io.WriteString(w, `{"token":"`+tokenOfTests+`"}`)
		case req.URL.Path == "/token":
			w.WriteHeader(http.StatusUnauthorized)
		case open.Load() || admits(req):
			inner.ServeHTTP(w, req)
		default:
			w.Header().Set("Www-Authenticate", challenge(req.Host))
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	ref, err := name.ParseReference(host + "/private:1")
	assert.NilError(t, err)
	open.Store(true)
	assert.NilError(t, remote.Write(ref, imageOf(t, nil, layerOf(t, tarOf(t, map[string]string{"usr/bin/bash": "#!"})))))
	open.Store(false)
	return host
}

func withLogin(t testing.TB, host string, login imagestore.Login) *imagestore.Store {
	t.Helper()
	of, err := imagestore.RegistryName(host)
	assert.NilError(t, err)
	s, err := imagestore.Open(imagestore.Options{Dir: t.TempDir(), Owner: "a", Logins: map[string]imagestore.Login{of: login}})
	assert.NilError(t, err)
	return s
}

func TestAPrivateRegistryGivesOutImagesForItsLogin(t *testing.T) {
	right := imagestore.Login{Username: userOfRegistry, Password: secretOfTests}
	for kind, host := range map[string]string{
		"basic": privateRegistry(t, func(string) string { return `Basic realm="x"` }, func(req *http.Request) bool {
			user, password, _ := req.BasicAuth()
			return user == userOfRegistry && password == secretOfTests
		}),
		"bearer": privateRegistry(t, func(host string) string {
			return fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, host)
		}, func(req *http.Request) bool { return req.Header.Get("Authorization") == "Bearer "+tokenOfTests }),
	} {
		t.Run(kind, func(t *testing.T) {
			req := sdk.BuildTemplateRequest{From: host + "/private:1"}
			_, _, err := build(t, withLogin(t, host, right), req)
			assert.NilError(t, err)

			for name, s := range map[string]*imagestore.Store{
				"a wrong password":         withLogin(t, host, imagestore.Login{Username: userOfRegistry, Password: "wrong-password"}),
				"a wrong user":             withLogin(t, host, imagestore.Login{Username: "other", Password: secretOfTests}),
				"the login of another one": withLogin(t, "localhost:1", right),
				"no login":                 open(t, t.TempDir(), "a"),
			} {
				_, _, err = build(t, s, req)
				assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest, name)
				assert.ErrorContains(t, err, host, name)
				assert.Assert(t, !strings.Contains(err.Error(), secretOfTests) && !strings.Contains(err.Error(), "wrong-password"), "%v", err)
			}
		})
	}
}

// TestAPasswordIsSentNowhereElse has a registry that may be hostile lead to another place.
func TestAPasswordIsSentNowhereElse(t *testing.T) {
	port, count := contacted(t)
	elsewhere := "https://localhost:" + port
	for name, answer := range map[string]http.HandlerFunc{
		"for a token": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Www-Authenticate", `Bearer realm="`+elsewhere+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"for a token, by a redirect": func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/token" {
				http.Redirect(w, req, elsewhere+"/token", http.StatusTemporaryRedirect)
				return
			}
			w.Header().Set("Www-Authenticate", `Bearer realm="http://`+req.Host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"for an image": func(w http.ResponseWriter, req *http.Request) {
			if _, _, known := req.BasicAuth(); known {
				http.Redirect(w, req, elsewhere+"/v2/", http.StatusTemporaryRedirect)
				return
			}
			w.Header().Set("Www-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			host := strings.TrimPrefix(server.URL, "http://")
			s := withLogin(t, host, imagestore.Login{Username: userOfRegistry, Password: secretOfTests})
			_, _, err := build(t, s, sdk.BuildTemplateRequest{From: host + "/private:1"})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest, "%v", err)
			assert.ErrorContains(t, err, "localhost:"+port)
			assert.Equal(t, count.Load(), int64(0))
		})
	}
}

func TestWhatARegistrySaysOfAPasswordIsNotRepeated(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"in a token that is none": func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/token" {
				_, _ = io.WriteString(w, `{"refresh_token":"`+secretOfTests+`"}`)
				return
			}
			w.Header().Set("Www-Authenticate", `Bearer realm="http://`+req.Host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"in an error": func(w http.ResponseWriter, req *http.Request) {
			if said := req.Header.Get("Authorization"); said != "" {
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, `{"errors":[{"code":"`+said+`","message":"`+secretOfTests+`"}]}`)
				return
			}
			w.Header().Set("Www-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"in the address of a redirect": func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") != "" {
				http.Redirect(w, req, "gopher://x/"+secretOfTests, http.StatusFound)
				return
			}
			w.Header().Set("Www-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			host := strings.TrimPrefix(server.URL, "http://")
			s := withLogin(t, host, imagestore.Login{Username: userOfRegistry, Password: secretOfTests})
			_, _, err := build(t, s, sdk.BuildTemplateRequest{From: host + "/private:1"})
			assert.Assert(t, err != nil)
			basic, authErr := (&authn.Basic{Username: userOfRegistry, Password: secretOfTests}).Authorization()
			assert.NilError(t, authErr)
			for _, secret := range []string{secretOfTests, base64.StdEncoding.EncodeToString([]byte(basic.Username + ":" + basic.Password))} {
				assert.Assert(t, !strings.Contains(err.Error(), secret), "%v", err)
			}
		})
	}
}
