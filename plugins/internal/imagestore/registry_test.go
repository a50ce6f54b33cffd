package imagestore

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-containerregistry/pkg/name"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestARegistryThatDripsIsLeft(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/silent" {
			<-req.Context().Done()
			return
		}
		for req.Context().Err() == nil { // a byte at a time
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer server.Close()
	of, err := name.NewRegistry(strings.TrimPrefix(server.URL, "http://"))
	assert.NilError(t, err)
	r := reach(of)
	defer r.close()
	r.patience = 100 * time.Millisecond
	for _, path := range []string{"/silent", "/dripping"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		assert.NilError(t, err)
		response, err := r.RoundTrip(req)
		if err == nil {
			var got int64
			got, err = io.Copy(io.Discard, response.Body)
			assert.Assert(t, got < leastBytes, "%d bytes came", got)
			assert.NilError(t, response.Body.Close())
		}
		assert.ErrorIs(t, err, errSlow, path)
	}
}

func TestTextOfOthersStaysText(t *testing.T) {
	for _, text := range []string{strings.Repeat("a", 299) + "é", "a\xffb\x00c", strings.Repeat("é", 300)} {
		cut := clipped(text)
		assert.Assert(t, utf8.ValidString(cut) && len(cut) <= 300, "%q", cut)
	}
}

// TestAnImageThatIsBeingRemovedIsNotUsed has another process remove an image between the
// two steps of Use.
func TestAnImageThatIsBeingRemovedIsNotUsed(t *testing.T) {
	dir, tree := t.TempDir(), t.TempDir()
	assert.NilError(t, os.MkdirAll(filepath.Join(tree, "bin"), 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(tree, "bin/bash"), []byte("#!"), 0o755))
	s, err := Open(Options{Dir: dir, Owner: "a"})
	assert.NilError(t, err)
	other, err := Open(Options{Dir: dir, Owner: "b"})
	assert.NilError(t, err)
	build := func() *Image {
		image, err := s.Build(t.Context(), sdk.BuildTemplateRequest{Name: "t", Rootfs: tree}, Tools{}, func(sdk.TemplateProgress) error { return nil })
		assert.NilError(t, err)
		return image
	}
	build()
	loaded := build()
	assert.NilError(t, s.Remove(t.Context(), loaded.Image))
	gone, err := other.removeUnused(digits(loaded.Image))
	assert.NilError(t, err)
	assert.Assert(t, gone)
	// Its directory is the last that goes.
	assert.NilError(t, os.MkdirAll(loaded.Rootfs(), 0o700))
	_, err = s.lockUse(loaded)
	assert.Assert(t, errors.Is(err, fs.ErrNotExist), "%v", err)

	// And what is left of it is no image for who builds it again.
	again := build()
	_, err = os.Stat(filepath.Join(again.Rootfs(), "bin/bash"))
	assert.NilError(t, err)
	_, release, err := s.Use(again.Image)
	assert.NilError(t, err)
	release()
}

func TestWhereAPasswordMayGo(t *testing.T) {
	const registryHost, elsewhere = "registry.example.com", "not its token_host"
	for name, test := range map[string]struct {
		url, authorization, method, refused string
		removed                             bool
	}{
		"to the registry":                    {url: "https://registry.example.com/v2/", authorization: "Basic x"},
		"to its port":                        {url: "https://registry.example.com:443/v2/", authorization: "Basic x"},
		"to where its tokens are":            {url: "https://auth.example.com/token", authorization: "Basic x"},
		"a token in a body":                  {url: "https://auth.example.com/token", method: http.MethodPost},
		"to another port":                    {url: "https://registry.example.com:444/v2/", authorization: "Basic x", refused: elsewhere},
		"to a name below":                    {url: "https://a.registry.example.com/v2/", authorization: "Basic x", refused: elsewhere},
		"to another host":                    {url: "https://other.example.com/token", authorization: "Basic x", refused: elsewhere},
		"in other letters":                   {url: "https://other.example.com/token", authorization: "bAsIc x", refused: elsewhere},
		"a token in a body to another host":  {url: "https://other.example.com/token", method: http.MethodPost, refused: elsewhere},
		"without TLS":                        {url: "http://registry.example.com:443/v2/", authorization: "Basic x", refused: "not reached over HTTPS"},
		"a token without TLS":                {url: "http://registry.example.com:443/v2/", authorization: "Bearer x", refused: "not reached over HTTPS"},
		"a token, where a layer is had":      {url: "https://blobs.example.com/layer", authorization: "Bearer x", removed: true},
		"nothing, where a layer is had":      {url: "https://blobs.example.com/layer"},
		"another kind of it to another host": {url: "https://blobs.example.com/layer", authorization: "Negotiate x", refused: elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registry{named: registryHost, login: &Login{Username: "u", Password: "p", TokenHost: "auth.example.com"}}
			method := test.method
			if method == "" {
				method = http.MethodGet
			}
			req, err := http.NewRequestWithContext(t.Context(), method, test.url, nil)
			assert.NilError(t, err)
			if test.authorization != "" {
				req.Header.Set("Authorization", test.authorization)
			}
			sent, err := r.guarded(req, withPort(req.URL.Host, "443"))
			if test.refused != "" {
				assert.ErrorContains(t, err, test.refused)
				return
			}
			assert.NilError(t, err)
			assert.Equal(t, sent.Header.Get("Authorization") == "", test.removed || test.authorization == "")
		})
	}
}
