package lending_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// serve asks for a file with headers of the form "Name: value".
func (f *fixture) serve(t *testing.T, method, name string, headers ...string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	r := httptest.NewRequest(method, "/", nil).WithContext(t.Context())
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	return w, lending.ServeFile(w, r, f, acme, f.id, name)
}

func TestAFileIsWrittenAndServed(t *testing.T) {
	f := start(t)
	info, err := lending.WriteFile(t.Context(), f, acme, f.id, sdk.WriteFileRequest{Path: "a/b.txt", MakeParents: true}, strings.NewReader("0123456789"))
	assert.NilError(t, err)
	assert.Equal(t, info.Path, "/workspace/a/b.txt")
	assert.Equal(t, info.Size, int64(10))

	whole, err := f.serve(t, http.MethodGet, "a/b.txt")
	assert.NilError(t, err)
	etag := whole.Header().Get("ETag")
	assert.Assert(t, etag != "")
	assert.Equal(t, whole.Header().Get("Content-Disposition"), "attachment; filename=b.txt")
	assert.Equal(t, whole.Header().Get("Content-Type"), lending.MediaBytes)
	for name, c := range map[string]struct {
		method  string
		headers []string
		status  int
		content string
		length  string
		part    string
	}{
		"all of it":                 {http.MethodGet, nil, http.StatusOK, "0123456789", "10", ""},
		"a range":                   {http.MethodGet, []string{"Range: bytes=2-4"}, http.StatusPartialContent, "234", "3", "bytes 2-4/10"},
		"its end":                   {http.MethodGet, []string{"Range: bytes=-3"}, http.StatusPartialContent, "789", "3", "bytes 7-9/10"},
		"a range of another file":   {http.MethodGet, []string{"Range: bytes=2-4", "If-Range: x"}, http.StatusOK, "0123456789", "10", ""},
		"its headers":               {http.MethodHead, nil, http.StatusOK, "", "10", ""},
		"what the client has":       {http.MethodGet, []string{"If-None-Match: " + etag}, http.StatusNotModified, "", "", ""},
		"not what the client knows": {http.MethodGet, []string{"If-None-Match: x"}, http.StatusOK, "0123456789", "10", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := f.serve(t, c.method, "a/b.txt", c.headers...)
			assert.NilError(t, err)
			assert.Equal(t, w.Code, c.status)
			assert.Equal(t, w.Body.String(), c.content)
			assert.Equal(t, w.Header().Get("Content-Length"), c.length)
			assert.Equal(t, w.Header().Get("Content-Range"), c.part)
		})
	}
	t.Run("nothing behind its end", func(t *testing.T) {
		_, err := f.serve(t, http.MethodGet, "a/b.txt", "Range: bytes=10-")
		refusal := rest.RefusalOf(err, "r-1")
		assert.Equal(t, refusal.Status, http.StatusRequestedRangeNotSatisfiable)
		assert.Equal(t, refusal.Headers["Content-Range"], "bytes */10")
	})
	t.Run("none that is not there", func(t *testing.T) {
		_, err := f.serve(t, http.MethodGet, "a/c.txt")
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	})
}

func TestAFileThatBreaksOffIsNotWritten(t *testing.T) {
	f := start(t)
	for name, c := range map[string]struct {
		failure error
		status  int
	}{
		"broken":  {errBroken, http.StatusBadRequest},
		"stopped": {os.ErrDeadlineExceeded, http.StatusRequestTimeout},
	} {
		content := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(c.failure))
		_, err := lending.WriteFile(t.Context(), f, acme, f.id, sdk.WriteFileRequest{Path: name}, content)
		assert.Check(t, is.Equal(rest.RefusalOf(err, "r-1").Status, c.status))
		_, err = os.Stat(filepath.Join(f.workspace, name))
		assert.Check(t, os.IsNotExist(err), "%v", err)
	}
	t.Run("the caller leaves", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		content := io.MultiReader(strings.NewReader("half"), leaver(leave))
		_, err := lending.WriteFile(ctx, f, acme, f.id, sdk.WriteFileRequest{Path: "left"}, content)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// leaver is called when it is read.
type leaver func()

func (l leaver) Read([]byte) (int, error) {
	l()
	return 0, errBroken
}

func TestAPartOfAFileIsLent(t *testing.T) {
	f := start(t)
	assert.NilError(t, os.WriteFile(filepath.Join(f.workspace, "x"), []byte("0123456789"), 0o600))
	err := lending.ReadFile(t.Context(), f, acme, f.id, sdk.ReadFileRequest{Path: "x", Offset: 3, Length: 4}, func(info sdk.FileInfo, content io.Reader) error {
		assert.Equal(t, info.Size, int64(10))
		text, err := io.ReadAll(content)
		assert.Equal(t, string(text), "3456")
		return err
	})
	assert.NilError(t, err)
}
