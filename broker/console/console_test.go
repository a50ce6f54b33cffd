package console_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/console"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// serve has the pages on a real listener until the test ends.
func serve(t *testing.T) (address string) {
	t.Helper()
	server := rest.NewServer(rest.Options{
		Tenants: tenant.NewDirectory(nil), Logger: hclog.NewNullLogger(), Bounds: rest.Bounds{MaxBody: 1 << 20, RequestTimeout: time.Minute},
	})
	a := server.NewAPI(rest.APIOptions{Document: rest.About{Title: "Pages", Version: "1", Problem: reflect.TypeFor[client.Problem]()}})
	assert.NilError(t, console.Add(a, "pages"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		assert.NilError(t, server.Shutdown(context.Background()))
		assert.NilError(t, <-served)
	})
	return "http://" + listener.Addr().String()
}

// head is what stands before the body of an answer.
type head struct {
	StatusCode int
	Header     http.Header
}

// get asks as it is told, and unpacks nothing.
func get(t *testing.T, address string, header http.Header) (head, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	assert.NilError(t, err)
	if req.Header = header; header == nil {
		req.Header = http.Header{}
	}
	resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return head{resp.StatusCode, resp.Header}, body
}

// withoutModules is a directory without what npm has installed there.
type withoutModules struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (f withoutModules) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "node_modules" }), err
}

func TestThePagesRunNothingButTheirFiles(t *testing.T) {
	address := serve(t)
	for path, mediaType := range map[string]string{
		"/admin": "text/html; charset=utf-8", "/admin/": "text/html; charset=utf-8", "/admin/sandbox-settings": "text/html; charset=utf-8",
		"/admin/tenants?x=1": "text/html; charset=utf-8", "/docs": "text/html; charset=utf-8", "/admin/assets/app.js": "text/javascript; charset=utf-8",
		"/admin/assets/style.css": "text/css; charset=utf-8", "/admin/assets/LICENSES.txt": "text/plain; charset=utf-8",
	} {
		t.Run(path, func(t *testing.T) {
			resp, _ := get(t, address+path, nil)
			assert.Equal(t, resp.StatusCode, http.StatusOK)
			assert.Equal(t, resp.Header.Get("Content-Type"), mediaType)
			policy := resp.Header.Get("Content-Security-Policy")
			for _, must := range []string{"default-src 'none'", "script-src 'self';", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
				assert.Check(t, is.Contains(policy, must))
			}
			assert.Check(t, !strings.Contains(policy, "unsafe-eval"))
			assert.Equal(t, resp.Header.Get("X-Frame-Options"), "DENY")
			assert.Equal(t, resp.Header.Get("X-Content-Type-Options"), "nosniff")
			assert.Equal(t, resp.Header.Get("Referrer-Policy"), "no-referrer")
			assert.Equal(t, resp.Header.Get("Set-Cookie"), "")
		})
	}
}

func TestWhatIsNoPageIsNotFound(t *testing.T) {
	address := serve(t)
	for _, path := range []string{
		"/admin/nothing", "/admin/index.html", "/admin/assets/index.html", "/admin/assets/docs.html", "/admin/assets/..%2findex.html",
		"/admin/assets/nothing.js", "/admin/assets", "/docs/x", "/admin/assets/%2e%2e",
	} {
		resp, body := get(t, address+path, nil)
		assert.Check(t, is.Equal(resp.StatusCode, http.StatusNotFound), "%s", path)
		assert.Check(t, is.Contains(string(body), `"SB013"`), "%s", path)
	}
}

func TestAFileIsSentOnceAndCompressed(t *testing.T) {
	address := serve(t) + "/admin/assets/app.js"
	plain, whole := get(t, address, nil)
	assert.Equal(t, plain.Header.Get("Content-Encoding"), "")
	small, packed := get(t, address, http.Header{"Accept-Encoding": {"br;q=0.1, gzip"}})
	assert.Equal(t, small.Header.Get("Content-Encoding"), "gzip")
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	assert.NilError(t, err)
	unpacked, err := io.ReadAll(reader)
	assert.NilError(t, err)
	assert.Check(t, bytes.Equal(unpacked, whole))
	assert.Check(t, len(packed) < len(whole)/2)
	assert.Check(t, plain.Header.Get("ETag") != small.Header.Get("ETag"))

	again, body := get(t, address, http.Header{"If-None-Match": {plain.Header.Get("ETag")}})
	assert.Equal(t, again.StatusCode, http.StatusNotModified)
	assert.Equal(t, len(body), 0)
	refused, _ := get(t, address, http.Header{"Accept-Encoding": {"gzip;q=0"}})
	assert.Equal(t, refused.Header.Get("Content-Encoding"), "")
}

// The first view of the page is everything that index.html names.
func TestThePageIsSmall(t *testing.T) {
	const most = 300 << 10
	size := int64(0)
	for _, name := range []string{"index.html", "app.js", "style.css"} {
		info, err := os.Stat(filepath.Join("assets", name))
		assert.NilError(t, err)
		size += info.Size()
	}
	charts, err := filepath.Glob("assets/chart-*.js")
	assert.NilError(t, err)
	assert.Equal(t, len(charts), 1)
	info, err := os.Stat(charts[0])
	assert.NilError(t, err)
	assert.Check(t, size+info.Size() <= most, "%d bytes", size+info.Size())
}

// What is committed is what its sources make.
func TestTheAssetsAreBuiltOfTheirSources(t *testing.T) {
	work, built := t.TempDir(), t.TempDir()
	assert.NilError(t, os.CopyFS(work, withoutModules{os.DirFS("web")}))
	run := func(name string, args ...string) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		assert.NilError(t, err, "%s %q: %s", name, args, out)
	}
	npm.Install(t, work)
	run("npx", "tsc", "--noEmit")
	run("node", "build.mjs", built)
	want, err := os.ReadDir("assets")
	assert.NilError(t, err)
	got, err := os.ReadDir(built)
	assert.NilError(t, err)
	assert.DeepEqual(t, names(got), names(want))
	for _, name := range names(want) {
		a, err := os.ReadFile(filepath.Join("assets", name))
		assert.NilError(t, err)
		b, err := os.ReadFile(filepath.Join(built, name))
		assert.NilError(t, err)
		assert.Check(t, bytes.Equal(a, b), "assets/%s is not what web/ makes: make console", name)
	}
}

func names(entries []os.DirEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
