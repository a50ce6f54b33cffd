package packageindex

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Index is an index of packages on the loopback address, until the test ends.
type Index struct {
	URL string
	mux *http.ServeMux
	t   testing.TB
}

// Start starts an index without packages.
func Start(t testing.TB) *Index {
	t.Helper()
	i := &Index{mux: http.NewServeMux(), t: t}
	server := httptest.NewServer(i.mux)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// Simple is the URL of the Python index.
func (i *Index) Simple() string { return i.URL + "/simple/" }

// Handle answers a path in another way.
func (i *Index) Handle(path string, handler http.HandlerFunc) { i.mux.HandleFunc(path, handler) }

// AddWheel adds a Python package of one version with one module.
func (i *Index) AddWheel(name, version, module string) {
	i.t.Helper()
	file, content := Wheel(i.t, name, version, module)
	i.Link(name, "/files/"+file)
	i.Handle("/files/"+file, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
}

// Link adds a Python package whose one file is elsewhere.
func (i *Index) Link(name, url string) {
	i.Handle("/simple/"+name+"/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!DOCTYPE html><a href=%q>%s</a>`, url, url[1+lastSlash(url):])
	})
}

func lastSlash(url string) int {
	for n := len(url) - 1; n >= 0; n-- {
		if url[n] == '/' {
			return n
		}
	}
	return -1
}

// AddNPM adds an npm package of one version with one module.
func (i *Index) AddNPM(name, version, module string) {
	i.t.Helper()
	content, integrity := npmArchive(i.t, name, version, module)
	path := "/npm-files/" + name + ".tgz"
	i.Handle("/"+name, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"name": %q, "dist-tags": {"latest": %q}, "versions": {%q: {"name": %q, "version": %q, "dist": {"tarball": %q, "integrity": %q}}}}`,
			name, version, version, name, version, i.URL+path, integrity)
	})
	i.Handle(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
}
