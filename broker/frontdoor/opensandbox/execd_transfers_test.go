package opensandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"
)

// part is one of a form: its name, and its content.
type part struct{ name, content string }

// form writes parts as the SDKs do.
func form(parts ...part) string {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.SetBoundary("b")
	for _, p := range parts {
		header := textproto.MIMEHeader{}
		header.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, p.name, p.name))
		out, _ := w.CreatePart(header)
		_, _ = io.WriteString(out, p.content)
	}
	_ = w.Close()
	return b.String()
}

const formType = "Content-Type: multipart/form-data; boundary=b"

func (f *fixture) upload(body string, headers ...string) answer {
	f.t.Helper()
	return f.execd(http.MethodPost, "/files/upload", body, append([]string{formType}, headers...)...)
}

func TestFilesAndWhatIsSaidOfThemBelongTogetherByTheirOrder(t *testing.T) {
	metadata := func(text string) part { return part{"metadata", text} }
	file := func(text string) part { return part{"file", text} }
	for name, parts := range map[string][]part{
		"by turns":               {metadata(`{"path": "a"}`), file("A"), metadata(`{"path": "~/dir/b"}`), file("B")},
		"first all that is said": {metadata(`{"path": "/workspace/a"}`), metadata(`{"path": "dir/b"}`), file("A"), file("B")},
		"among other parts":      {{"note", "x"}, metadata(`{"path": "a", "other": 1}`), {"note", "x"}, file("A"), metadata(`{"path": "dir/b"}`), file("B"), {"note", "x"}},
		"with nulls":             {metadata(`{"path": "a", "owner": null, "group": null, "mode": null}`), file("A"), metadata(`{"path": "dir/b", "owner": ""}`), file("B")},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.upload(form(parts...)).wants(http.StatusOK).empty()
			assert.Equal(t, f.read("workspace/a"), "A")
			assert.Equal(t, f.read("workspace/dir/b"), "B")
		})
	}
}

func TestAnUploadedFileHasTheModeThatWasAskedFor(t *testing.T) {
	f := start(t)
	f.write("workspace/old", "")
	assert.NilError(t, os.Chmod(filepath.Join(f.box.workspace, "old"), 0o604))
	f.upload(form(
		part{"metadata", `{"path": "new"}`}, part{"file", "#!/bin/sh"},
		part{"metadata", `{"path": "old"}`}, part{"file", "new content"},
		part{"metadata", `{"path": "asked", "mode": 640}`}, part{"file", ""},
	)).wants(http.StatusOK)
	for name, want := range map[string]os.FileMode{"new": 0o755, "old": 0o604, "asked": 0o640} {
		info, err := os.Stat(filepath.Join(f.box.workspace, name))
		assert.NilError(t, err)
		assert.Equal(t, info.Mode().Perm(), want, name)
	}
	assert.Equal(t, f.read("workspace/old"), "new content")
}

func TestWhatIsNoUploadIsRefused(t *testing.T) {
	good := []part{{"metadata", `{"path": "a"}`}, {"file", "A"}}
	whole := form(good...)
	for name, body := range map[string]string{
		"nothing":                        "",
		"no form":                        "{}",
		"no parts":                       "--b--\r\n",
		"no file":                        form(good[0]),
		"no metadata":                    form(good[1]),
		"the file first":                 form(good[1], good[0]),
		"more metadata than files":       form(append(good, good[0])...),
		"more files than metadata":       form(append(good, good[1])...),
		"metadata that is no JSON":       form(part{"metadata", "path"}, good[1]),
		"metadata that is no object":     form(part{"metadata", `"a"`}, good[1]),
		"metadata that is null":          form(part{"metadata", `null`}, good[1]),
		"metadata without a path":        form(part{"metadata", `{"mode": 644}`}, good[1]),
		"a path that is no text":         form(part{"metadata", `{"path": 1}`}, good[1]),
		"a path that is empty":           form(part{"metadata", `{"path": ""}`}, good[1]),
		"a path with a NUL":              form(part{"metadata", `{"path": "a\u0000"}`}, good[1]),
		"a mode that is none":            form(part{"metadata", `{"path": "a", "mode": 888}`}, good[1]),
		"a mode that is text":            form(part{"metadata", `{"path": "a", "mode": "644"}`}, good[1]),
		"an owner":                       form(part{"metadata", `{"path": "a", "owner": "root"}`}, good[1]),
		"a group":                        form(part{"metadata", `{"path": "a", "group": "root"}`}, good[1]),
		"metadata that is too large":     form(part{"metadata", `{"path": "a"` + strings.Repeat(" ", 64<<10) + `}`}, good[1]),
		"metadata of too many":           form(append(slicesRepeat(good[0], 101), good[1])...),
		"a form cut off in the head":     whole[:20],
		"a form cut off in the metadata": whole[:strings.Index(whole, "path")],
		"a form cut off in the file":     strings.TrimSuffix(whole, "\r\n--b--\r\n"),
		"a form cut off at its end":      strings.TrimSuffix(whole, "--\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.upload(body).refuses(http.StatusBadRequest, "SB010")
			left, err := os.ReadDir(f.box.workspace)
			assert.NilError(t, err)
			switch name { // where the first file was whole when the mistake came
			case "more metadata than files", "more files than metadata", "a form cut off at its end":
				assert.Equal(t, f.read("workspace/a"), "A")
			default:
				assert.Equal(t, len(left), 0)
			}
		})
	}
	t.Run("another type", func(t *testing.T) {
		f := start(t)
		f.upload(whole, "Content-Type: application/json").refuses(http.StatusBadRequest, "SB010")
		f.upload(whole, "Content-Type: multipart/form-data").refuses(http.StatusBadRequest, "SB010")
		f.upload(whole, "Content-Encoding: gzip").refuses(http.StatusUnsupportedMediaType, "SB010")
	})
	t.Run("a directory in the way", func(t *testing.T) {
		f := start(t)
		f.write("workspace/a/b", "")
		f.upload(whole).refuses(http.StatusConflict, "SB014")
	})
}

func slicesRepeat(p part, n int) []part {
	var all []part
	for range n {
		all = append(all, p)
	}
	return all
}

// A file that is larger than any body that is held arrives while it is sent.
func TestAnUploadIsNotHeld(t *testing.T) {
	f := start(t)
	const half = 8 << 20
	head, tail, _ := strings.Cut(form(part{"metadata", `{"path": "large"}`}, part{"file", "CONTENT"}), "CONTENT")
	body, sender := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(sender, head)
		for range 2 {
			_, writeErr := sender.Write(make([]byte, half))
			err = errors.Join(err, writeErr)
			if f.box.written.Load() < half/2 { // what follows is sent when that has come
				poll.WaitOn(t, func(poll.LogT) poll.Result {
					if n := f.box.written.Load(); n < half/2 {
						return poll.Continue("%d bytes have come", n)
					}
					return poll.Success()
				}, poll.WithTimeout(2*time.Minute))
			}
		}
		_, tailErr := io.WriteString(sender, tail)
		sent <- errors.Join(err, tailErr, sender.Close())
	}()
	req := f.request(t.Context(), http.MethodPost, f.endpoint+"/files/upload", body, formType, "X-EXECD-ACCESS-TOKEN: "+f.token)
	f.send(req).wants(http.StatusOK).empty()
	assert.NilError(t, <-sent)
	info, err := os.Stat(filepath.Join(f.box.workspace, "large"))
	assert.NilError(t, err)
	assert.Equal(t, info.Size(), int64(2*half))
}

func TestAClientThatLeavesWithinAnUploadLeavesNothing(t *testing.T) {
	f := start(t)
	head, _, _ := strings.Cut(form(part{"metadata", `{"path": "a"}`}, part{"file", "CONTENT"}), "CONTENT")
	body, sender := io.Pipe()
	go func() {
		_, _ = io.WriteString(sender, head+strings.Repeat("x", 1<<20))
		_ = sender.CloseWithError(errors.New("the client leaves"))
	}()
	req := f.request(t.Context(), http.MethodPost, f.endpoint+"/files/upload", body, formType, "X-EXECD-ACCESS-TOKEN: "+f.token)
	_, err := f.client.Do(req) //nolint:bodyclose // there is none
	assert.ErrorContains(t, err, "the client leaves")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left, err := os.ReadDir(f.box.workspace); err != nil || len(left) > 0 {
			return poll.Continue("there are %v, %v", left, err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func TestDownloadsAreOfBytesOrLines(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "one\ntwo\r\n\nfour")
	f.write("workspace/empty", "")
	f.write("workspace/long", strings.Repeat("x", 200<<10)+"\nlast\n")
	for name, c := range map[string]struct {
		query, header string
		status        int
		want          string
	}{
		"all":                       {"path=a", "", 200, "one\ntwo\r\n\nfour"},
		"a range":                   {"path=~/a", "Range: bytes=0-2", 206, "one"},
		"the first of several":      {"path=a", "Range: bytes=4-6, 0-2", 206, "two"},
		"the end":                   {"path=/workspace/a", "Range: bytes=-4", 206, "four"},
		"from an offset":            {"path=a", "Range: bytes=10-", 206, "four"},
		"what is no range":          {"path=a", "Range: lines=1-2", 200, "one\ntwo\r\n\nfour"},
		"lines from the first":      {"path=a&offset=1", "", 200, "one\ntwo\r\n\nfour"},
		"some lines":                {"path=a&offset=2&limit=2", "", 200, "two\r\n\n"},
		"a number of lines":         {"path=a&limit=1", "", 200, "one\n"},
		"the last line":             {"path=a&offset=4", "", 200, "four"},
		"lines behind the end":      {"path=a&offset=5", "", 200, ""},
		"lines of nothing":          {"path=empty&limit=3", "", 200, ""},
		"a line behind a long one":  {"path=long&offset=2&limit=1", "", 200, "last\n"},
		"nothing":                   {"path=empty", "", 200, ""},
		"more lines than there are": {"path=long&offset=2&limit=1000000", "", 200, "last\n"},
		"a long line alone":         {"path=long&limit=1", "", 200, strings.Repeat("x", 200<<10) + "\n"},
		"a path that is escaped":    {"path=%61", "", 200, "one\ntwo\r\n\nfour"},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			var headers []string
			if c.header != "" {
				headers = append(headers, c.header)
			}
			got := f.execd(http.MethodGet, "/files/download?"+c.query, "", headers...).wants(c.status)
			assert.Equal(t, got.text, c.want)
			kind := "application/octet-stream"
			if strings.Contains(c.query, "offset") || strings.Contains(c.query, "limit") {
				kind = "text/plain; charset=utf-8"
			}
			assert.Equal(t, got.Header.Get("Content-Type"), kind)
		})
	}
	f.t = t
	f.execd(http.MethodGet, "/files/download?path=missing", "").refuses(http.StatusNotFound, "SB013")
	f.execd(http.MethodGet, "/files/download?path=missing&limit=1", "").refuses(http.StatusNotFound, "SB013")
	f.execd(http.MethodGet, "/files/download?path=.", "").refuses(http.StatusConflict, "SB014")
	f.execd(http.MethodGet, "/files/download?path=a&offset=1", "", "Range: bytes=0-1").refuses(http.StatusBadRequest, "SB010")
	f.execd(http.MethodGet, "/files/download?path=a", "", "Range: bytes=99-").refuses(http.StatusRequestedRangeNotSatisfiable, "SB010")
	f.execd(http.MethodHead, "/files/download?path=a&limit=1", "").wants(http.StatusOK)
}
