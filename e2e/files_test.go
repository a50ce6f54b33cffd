package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

func TestFilesOfAnInstance(t *testing.T) {
	t.Parallel()
	startOnBothRuntimes(t, "workspace_mb = 32", testFiles)
}

// filesOf asks for the files of one instance.
type filesOf struct {
	*harness.Broker
	id string
}

func newFiles(t *testing.T, b *harness.Broker) filesOf {
	t.Helper()
	return filesOf{b, createLive(t, b, map[string]any{"language": "bash"}).ID}
}

func (f filesOf) do(method, below string, query url.Values, body any) harness.Answer {
	if query != nil {
		below += "?" + query.Encode()
	}
	return f.Do(method, "/api/v1/instances/"+f.id+below, harness.Token, body)
}

func (f filesOf) put(path string, content []byte) harness.Answer {
	return f.do(http.MethodPut, "/files/content", url.Values{"path": {path}, "parents": {""}}, content)
}

func (f filesOf) get(path string) harness.Answer {
	return f.do(http.MethodGet, "/files/content", url.Values{"path": {path}}, nil)
}

func (f filesOf) shell(t *testing.T, code string) string {
	t.Helper()
	var e harness.Execution
	answer := f.do(http.MethodPost, "/execute", nil, map[string]any{"language": "bash", "code": code})
	answer.Into(t, &e)
	assert.Equal(t, e.ExitCode, 0, "%s", answer.Body)
	return e.Stdout
}

func testFiles(t *testing.T, b *harness.Broker) {
	f := newFiles(t, b)
	binary := bytes.Repeat([]byte("\x00\xff\r\n"), 100_000)

	t.Run("what is written is read, by code and by callers", func(t *testing.T) {
		answer := f.put("data/a b.bin", binary)
		var file struct {
			Path, Type, Mode string
			Size             int64
			ModifiedAt       time.Time `json:"modified_at"`
		}
		answer.Into(t, &file)
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		assert.Equal(t, file.Path, "/workspace/data/a b.bin")
		assert.Equal(t, file.Size, int64(len(binary)))
		assert.Equal(t, file.Mode, "0644")
		assert.Check(t, !file.ModifiedAt.IsZero())
		got := f.get("data/a b.bin")
		assert.Equal(t, got.Status, http.StatusOK)
		assert.Check(t, bytes.Equal(got.Body, binary))
		assert.Equal(t, got.Header.Get("Content-Type"), "application/octet-stream")
		assert.Equal(t, got.Header.Get("X-Content-Type-Options"), "nosniff")
		assert.Equal(t, got.Header.Get("Content-Disposition"), `attachment; filename="a b.bin"`)
		assert.Equal(t, f.shell(t, "stat -c '%u %s' data/*"), "1000 400000\n")
		head := f.do(http.MethodHead, "/files/content", url.Values{"path": {"data/a b.bin"}}, nil)
		assert.Equal(t, head.Header.Get("Content-Length"), "400000")
		assert.Check(t, is.Len(head.Body, 0))
	})
	t.Run("a part", func(t *testing.T) {
		for asked, want := range map[string]string{"bytes=2-4": "234", "bytes=-2": "89", "bytes=8-": "89", "bytes=0-0": "0"} {
			assert.Equal(t, f.put("digits", []byte("0123456789")).Status, http.StatusOK)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+"/api/v1/instances/"+f.id+"/files/content?path=digits", nil)
			assert.NilError(t, err)
			req.Header.Set("Authorization", "Bearer "+harness.Token)
			req.Header.Set("Range", asked)
			resp, err := http.DefaultClient.Do(req)
			assert.NilError(t, err)
			text, err := io.ReadAll(resp.Body)
			assert.NilError(t, errors.Join(err, resp.Body.Close()))
			assert.Equal(t, resp.StatusCode, http.StatusPartialContent)
			assert.Check(t, is.Equal(string(text), want), "%s: %s", asked, resp.Header.Get("Content-Range"))
		}
	})
	t.Run("the smaller calls", func(t *testing.T) {
		made := f.do(http.MethodPost, "/files/directories", nil, map[string]any{"path": "tree/sub", "mode": "750"})
		assert.Check(t, is.Contains(string(made.Body), `"mode":"0750"`))
		assert.Equal(t, f.do(http.MethodPost, "/files/copy", nil, map[string]any{"from": "digits", "to": "tree/sub/digits"}).Status, http.StatusOK)
		changed := f.do(http.MethodPost, "/files/mode", nil, map[string]any{"path": "tree/sub/digits", "mode": "0751"})
		assert.Check(t, is.Contains(string(changed.Body), `"mode":"0751"`))
		assert.Equal(t, f.shell(t, "stat -c %a tree/sub/digits"), "751\n")
		for _, mode := range []string{"", "88", "4755", "01777", "u+x", "7777777"} {
			harness.Refused(t, f.do(http.MethodPost, "/files/mode", nil, map[string]any{"path": "tree/sub/digits", "mode": mode}), http.StatusUnprocessableEntity, "SB010")
		}
		harness.Refused(t, f.do(http.MethodPost, "/files/mode", nil, map[string]any{"path": "/etc/passwd", "mode": "777"}), http.StatusUnprocessableEntity, "SB010")
		assert.Equal(t, f.do(http.MethodPost, "/files/move", nil, map[string]any{"from": "tree", "to": "/tmp/tree"}).Status, http.StatusOK)
		var list struct {
			Files     []struct{ Path, Type string }
			Truncated bool
		}
		f.do(http.MethodGet, "/files", url.Values{"path": {"/tmp/tree"}, "glob": {"**"}}, nil).Into(t, &list)
		assert.Assert(t, is.Len(list.Files, 2))
		assert.Equal(t, list.Files[1].Path, "/tmp/tree/sub/digits")
		harness.Refused(t, f.do(http.MethodDelete, "/files", url.Values{"path": {"/tmp/tree"}}, nil), http.StatusConflict, "SB014")
		assert.Equal(t, f.do(http.MethodDelete, "/files", url.Values{"path": {"/tmp/tree"}, "recursive": {""}}, nil).Status, http.StatusNoContent)
		p := harness.Refused(t, f.do(http.MethodGet, "/files/stat", url.Values{"path": {"/tmp/tree"}}, nil), http.StatusNotFound, "SB013")
		assert.Check(t, !strings.Contains(p.Detail, "provider"), p.Detail)
		p = harness.Refused(t, f.do(http.MethodGet, "/files/stat", url.Values{"path": {"/etc/passwd"}}, nil), http.StatusUnprocessableEntity, "SB010")
		assert.Check(t, is.Equal(p.Provider, "self_managed"))
		assert.Check(t, strings.HasPrefix(p.Detail, "path: ") && !strings.Contains(p.Detail, "provider"), p.Detail)

		assert.Equal(t, f.put("notes.txt", []byte("buy milk\nbuy bread\n")).Status, http.StatusOK)
		found := f.do(http.MethodPost, "/files/search", nil, map[string]any{"pattern": "^buy b", "glob": "*.txt"})
		assert.Equal(t, string(found.Body), `{"matches":[{"path":"/workspace/notes.txt","line":2,"column":1,"text":"buy bread"}],"truncated":false}`)
		replaced := f.do(http.MethodPost, "/files/replace", nil, map[string]any{"paths": []string{"notes.txt"}, "old": "buy", "new": "bought"})
		assert.Equal(t, string(replaced.Body), `{"files":[{"path":"/workspace/notes.txt","count":2}]}`)
		assert.Equal(t, string(f.get("notes.txt").Body), "bought milk\nbought bread\n")
	})
	t.Run("nothing leads out", func(t *testing.T) {
		f.shell(t, "ln -s /etc out; ln -s ../../etc/passwd link; mkfifo pipe")
		for _, path := range []string{"out/passwd", "link", "../etc/passwd", "/etc/passwd", "a/../../etc/passwd", "/dev/zero", "/proc/self/environ", "nul\x00", strings.Repeat("n", 256)} {
			p := harness.Refused(t, f.get(path), http.StatusUnprocessableEntity, "SB010")
			assert.Check(t, is.Equal(p.Field, "path"), "%q", path)
		}
		harness.Refused(t, f.get("pipe"), http.StatusConflict, "SB014")
		harness.Refused(t, f.get("not\xffutf8"), http.StatusUnprocessableEntity, "SB010")
		f.shell(t, "rm out link pipe")
	})
	t.Run("names differ byte by byte", func(t *testing.T) {
		assert.Equal(t, f.put("caf\u00e9", []byte("composed")).Status, http.StatusOK)
		assert.Equal(t, f.put("cafe\u0301", []byte("decomposed")).Status, http.StatusOK)
		assert.Equal(t, string(f.get("caf\u00e9").Body), "composed")
		assert.Equal(t, string(f.get("cafe\u0301").Body), "decomposed")
	})
	t.Run("a body that breaks off leaves nothing", func(t *testing.T) {
		for _, declared := range []string{"Content-Length: 10737418240", "Transfer-Encoding: chunked"} {
			broken(t, f, declared)
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				return poll.Compare(is.Equal(f.shell(t, "ls -A | grep -c -e part -e sandbox- || true"), "0\n"))
			}, poll.WithTimeout(2*time.Minute))
		}
	})
	t.Run("a file above the disk is refused while it is sent", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, f.URL+"/api/v1/instances/"+f.id+"/files/content?path=big", io.LimitReader(endless{}, 10<<30))
		assert.NilError(t, err)
		req.ContentLength = 10 << 30
		req.Header.Set("Authorization", "Bearer "+harness.Token)
		req.Header.Set("Expect", "100-continue")
		resp, err := http.DefaultClient.Do(req)
		if err == nil { // the answer, unless the connection ended while the client was still sending
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			assert.NilError(t, err)
			assert.Equal(t, resp.StatusCode, http.StatusTooManyRequests, "%s", text)
			assert.Check(t, is.Contains(string(text), "at most 32 MiB"))
		}
		harness.Refused(t, f.get("big"), http.StatusNotFound, "SB013")
	})
	t.Run("archives", func(t *testing.T) { testArchives(t, f) })
	t.Run("forms", func(t *testing.T) { testForms(t, f) })
	t.Run("changes", func(t *testing.T) { testChanges(t, f) })
	t.Run("another tenant's instance has no files", func(t *testing.T) {
		for _, below := range []string{"/files", "/files/content?path=digits", "/files/stat?path=digits", "/archive", "/files/watch"} {
			harness.Refused(t, f.Do(http.MethodGet, "/api/v1/instances/"+f.id+below, harness.OtherToken, nil), http.StatusNotFound, "SB013")
		}
		harness.Refused(t, f.Do(http.MethodPut, "/api/v1/instances/"+f.id+"/files/content?path=digits", harness.OtherToken, []byte("x")), http.StatusNotFound, "SB013")
		assert.Equal(t, string(f.get("digits").Body), "0123456789")
	})
}

// endless is as long as anybody reads.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// broken sends the head of an upload and a piece of its body, and closes.
func broken(t *testing.T, f filesOf, declared string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.URL, "http://"))
	assert.NilError(t, err)
	piece := strings.Repeat("x", 100_000)
	if strings.Contains(declared, "chunked") {
		piece = fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
	}
	_, err = fmt.Fprintf(conn, "PUT /api/v1/instances/%s/files/content?path=part HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n%s", f.id, harness.Token, declared, piece)
	assert.NilError(t, err)
	// The draft shows that the broker has begun.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(f.shell(t, "ls -A | grep -c sandbox-draft || true"), "1\n"))
	}, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, conn.Close())
}

// formFile is a part of a form; without a name it is a plain field.
type formFile struct{ name, content string }

func testForms(t *testing.T, f filesOf) {
	send := func(query url.Values, files ...formFile) harness.Answer {
		t.Helper()
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		for i, file := range files {
			header := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name="f%d"`, i)}}
			if file.name != "" {
				header.Set("Content-Disposition", fmt.Sprintf(`form-data; name="f%d"; filename=%q`, i, file.name))
			}
			w, err := form.CreatePart(header)
			assert.NilError(t, err)
			_, err = w.Write([]byte(file.content))
			assert.NilError(t, err)
		}
		assert.NilError(t, form.Close())
		return f.DoWith(http.MethodPost, "/api/v1/instances/"+f.id+"/files?"+query.Encode(), harness.Token, body.Bytes(),
			map[string]string{"Content-Type": form.FormDataContentType()})
	}
	var uploaded struct {
		Files []struct {
			Path, Mode string
			Size       int64
		}
	}
	send(url.Values{"directory": {"forms"}, "mode": {"0600"}}, formFile{"a.txt", "one"}, formFile{"src/main.py", "print(2)"}).Into(t, &uploaded)
	assert.Equal(t, len(uploaded.Files), 2)
	assert.Equal(t, uploaded.Files[1].Path, "/workspace/forms/src/main.py")
	assert.Equal(t, uploaded.Files[1].Mode, "0600")
	assert.Equal(t, f.shell(t, "cat forms/a.txt forms/src/main.py; stat -c %u forms/a.txt"), "oneprint(2)1000\n")

	for name, files := range map[string][]formFile{
		"a field": {{"", "x"}}, "no file": nil, "an absolute name": {{"/tmp/x", ""}}, "a name with ..": {{"../x", ""}}, "a name with .. inside": {{"a/../../x", ""}},
	} {
		p := harness.Refused(t, send(nil, files...), http.StatusUnprocessableEntity, "SB010")
		assert.Check(t, is.Equal(p.Field, "content"), "%s: %s", name, p.Detail)
	}
	post := func(mediaType, body string, headers map[string]string) harness.Answer {
		all := map[string]string{"Content-Type": mediaType}
		maps.Copy(all, headers)
		return f.DoWith(http.MethodPost, "/api/v1/instances/"+f.id+"/files", harness.Token, []byte(body), all)
	}
	harness.Refused(t, post("application/json", "{}", nil), http.StatusUnsupportedMediaType, "SB010")
	harness.Refused(t, post("multipart/form-data", "x", nil), http.StatusUnsupportedMediaType, "SB010")
	harness.Refused(t, post("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=f; filename=cut\r\n\r\nhalf", nil), http.StatusUnprocessableEntity, "SB010")
	assert.Equal(t, f.shell(t, "ls cut 2>/dev/null || true"), "", "half a file appears not at all")
	harness.Refused(t, post("multipart/form-data; boundary=b", "--b--", map[string]string{"Idempotency-Key": "k"}), http.StatusUnprocessableEntity, "SB010")
	// Another tenant's instance is none.
	harness.Refused(t, f.DoWith(http.MethodPost, "/api/v1/instances/"+f.id+"/files", harness.OtherToken, []byte("--b--"), map[string]string{"Content-Type": "multipart/form-data; boundary=b"}), http.StatusNotFound, "SB013")
}

func testArchives(t *testing.T, f filesOf) {
	pack := func(headers ...*tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			assert.NilError(t, w.WriteHeader(h))
			_, err := w.Write(make([]byte, min(h.Size, 100)))
			assert.NilError(t, err)
		}
		_ = w.Close() // it knows of a size that is a lie
		return b.Bytes()
	}
	file := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 3, ModTime: time.Unix(1e9, 0)}
	}
	assert.Equal(t, f.do(http.MethodPost, "/files/directories", nil, map[string]any{"path": "unpacked"}).Status, http.StatusOK)
	unpack := func(content []byte) harness.Answer {
		return f.do(http.MethodPut, "/archive", url.Values{"directory": {"unpacked"}}, content)
	}
	answer := unpack(pack(file("a"), file("sub/b"), &tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a"}))
	assert.Equal(t, string(answer.Body), `{"files":3,"bytes":6}`)
	assert.Equal(t, f.shell(t, "stat -c '%Y %u' unpacked/sub/b"), "1000000000 1000\n")

	got := f.do(http.MethodGet, "/archive", url.Values{"directory": {"unpacked"}}, nil)
	assert.Equal(t, got.Header.Get("Content-Type"), "application/x-tar")
	names := func(content []byte) (list []string) {
		r := tar.NewReader(bytes.NewReader(content))
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return list
			}
			assert.NilError(t, err)
			list = append(list, h.Name)
		}
	}
	assert.DeepEqual(t, names(got.Body), []string{"a", "l", "sub/", "sub/b"})
	got = f.do(http.MethodGet, "/archive", url.Values{"directory": {"unpacked"}, "paths": {"sub", "a"}}, nil)
	assert.DeepEqual(t, names(got.Body), []string{"sub/", "sub/b", "a"})

	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(pack(file("zipped/a")))
	assert.NilError(t, errors.Join(err, w.Close()))
	assert.Equal(t, string(unpack(packed.Bytes()).Body), `{"files":1,"bytes":3}`)
	assert.Equal(t, f.do(http.MethodDelete, "/files", url.Values{"path": {"unpacked/zipped"}, "recursive": {"true"}}, nil).Status, http.StatusNoContent)
	p := harness.Refused(t, unpack(packed.Bytes()[:12]), http.StatusUnprocessableEntity, "SB010")
	assert.Check(t, is.Equal(p.Field, "content"), p.Detail)

	for name, h := range map[string]*tar.Header{
		"an absolute name": file("/tmp/x"), "a name with ..": file("../x"),
		"a hard link": {Name: "h", Typeflag: tar.TypeLink, Linkname: "a"},
		"a device":    {Name: "d", Typeflag: tar.TypeBlock}, "a pipe": {Name: "p", Typeflag: tar.TypeFifo},
		"a way through a link": file("l/x"),
	} {
		p := harness.Refused(t, unpack(pack(h)), http.StatusUnprocessableEntity, "SB010")
		assert.Check(t, is.Equal(p.Field, "content"), "%s: %s", name, p.Detail)
	}
	huge := file("huge")
	huge.Size = 10 << 30
	harness.Refused(t, unpack(pack(huge)), http.StatusTooManyRequests, "SB008")
	assert.Equal(t, f.shell(t, "ls unpacked; ls /tmp"), "a\nl\nsub\n")
}

func testChanges(t *testing.T, f filesOf) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+"/api/v1/instances/"+f.id+"/files/watch?recursive", nil)
	assert.NilError(t, err)
	req.Header.Set("Authorization", "Bearer "+harness.Token)
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, resp.Header.Get("Content-Type"), "text/event-stream")
	events := sse.NewReader(resp.Body, 1<<20)
	first, err := events.Next()
	assert.NilError(t, err)
	assert.Equal(t, first.Name, "ready")
	f.shell(t, "mkdir -p seen/deep; echo x > seen/deep/file")
	for {
		event, err := events.Next()
		assert.NilError(t, err)
		assert.Equal(t, event.Name, "change")
		var change struct{ Kind, Path string }
		assert.NilError(t, json.Unmarshal(event.Data, &change))
		if change.Kind == "created" && change.Path == "/workspace/seen/deep/file" {
			return
		}
	}
}

// The provider says what it lacks before anything is done.
func TestAProviderWithoutFilesIsRefused(t *testing.T) {
	t.Parallel()
	b := mock.Broker(t)
	id := createLive(t, b, map[string]any{}).ID
	for below, capability := range map[string]string{"/files": "files", "/archive": "archives", "/files/watch": "file_watch"} {
		answer := b.Do(http.MethodGet, "/api/v1/instances/"+id+below, harness.Token, nil)
		p := harness.Refused(t, answer, http.StatusNotImplemented, "SB015")
		assert.Check(t, is.Contains(string(answer.Body), fmt.Sprintf("%q:%q", "capability", capability)))
		assert.Check(t, is.Contains(p.Detail, "mock"))
	}
	answer := b.Do(http.MethodPost, "/api/v1/instances/"+id+"/files/mode", harness.Token, map[string]any{"path": "f", "mode": "644"})
	harness.Refused(t, answer, http.StatusNotImplemented, "SB015")
	assert.Check(t, is.Contains(string(answer.Body), `"capability":"file_mode"`))
}
