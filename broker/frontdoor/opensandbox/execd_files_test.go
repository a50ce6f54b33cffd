package opensandbox_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// described is a file as clients are told of it.
type described struct {
	Path  string  `json:"path"`
	Type  string  `json:"type"`
	Size  int64   `json:"size"`
	Mode  int     `json:"mode"`
	Owner *string `json:"owner"`
	Group *string `json:"group"`

	ModifiedAt string `json:"modified_at"`
	CreatedAt  string `json:"created_at"`
}

func paths(files []described) string {
	var all []string
	for _, file := range files {
		all = append(all, strings.TrimPrefix(file.Path, "/workspace/"))
	}
	return strings.Join(all, " ")
}

func TestFilesAreDescribedByTheNamesThatTheyWereAskedFor(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "12345")
	assert.NilError(t, os.Chmod(filepath.Join(f.box.workspace, "a"), 0o750))
	assert.NilError(t, os.Symlink("nowhere", filepath.Join(f.box.workspace, "link")))
	assert.NilError(t, os.Mkdir(filepath.Join(f.box.workspace, "dir"), 0o700))

	infos := map[string]described{}
	f.execd(http.MethodGet, "/files/info?path=/workspace/a&path=a&path=~/a&path=link&path=~", "").wants(http.StatusOK).decode(&infos)
	assert.Equal(t, len(infos), 5)
	for _, name := range []string{"/workspace/a", "a", "~/a"} {
		info := infos[name]
		assert.Equal(t, info.Path, "/workspace/a", name)
		assert.Equal(t, info.Type, "file")
		assert.Equal(t, info.Size, int64(5))
		assert.Equal(t, info.Mode, 750)
		assert.Assert(t, info.ModifiedAt != "" && info.CreatedAt != "")
		assert.Assert(t, info.Owner != nil && *info.Owner == "" && info.Group != nil && *info.Group == "", "clients need the fields")
	}
	assert.Equal(t, infos["link"].Type, "symlink")
	assert.Equal(t, infos["~"].Type, "directory")

	assert.Equal(t, f.execd(http.MethodGet, "/files/info", "").wants(http.StatusOK).text, "{}")
	f.execd(http.MethodGet, "/files/info?path=a&path=missing", "").refuses(http.StatusNotFound, "SB013")
}

func TestFilesAreDeletedAndDirectoriesAreNot(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "")
	f.write("workspace/dir/b", "")
	f.execd(http.MethodDelete, "/files?path=a&path=dir", "").refuses(http.StatusBadRequest, "SB010")
	assert.Equal(t, f.read("workspace/a"), "", "nothing is deleted where something is refused")
	f.execd(http.MethodDelete, "/files?path=/workspace/a&path=missing&path=dir/b", "").wants(http.StatusOK).empty()
	_, err := os.Stat(filepath.Join(f.box.workspace, "a"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	f.execd(http.MethodDelete, "/files", "").wants(http.StatusOK).empty()
}

func TestDirectoriesAreDeletedWithAllThatIsInThem(t *testing.T) {
	f := start(t)
	f.write("workspace/dir/sub/b", "")
	f.write("workspace/a", "")
	// The SDK sends a body of JSON with it.
	f.execd(http.MethodDelete, "/directories?path=dir&path=missing&path=a", "{}").wants(http.StatusOK).empty()
	left, err := os.ReadDir(f.box.workspace)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}

func TestPermissionsAreDecimalNumbersWithOctalDigits(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "")
	f.execd(http.MethodPost, "/files/permissions", `{"a": {"mode": 640, "owner": "", "group": null}}`).wants(http.StatusOK).empty()
	info, err := os.Stat(filepath.Join(f.box.workspace, "a"))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o640))
	f.execd(http.MethodPost, "/files/permissions", `{"missing": {"mode": 640}}`).refuses(http.StatusNotFound, "SB013")
}

func TestFilesAreMoved(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "a")
	f.write("workspace/b", "b")
	f.execd(http.MethodPost, "/files/mv", `[{"src": "a", "dest": "~/new/deep/a"}, {"src": "/workspace/new", "dest": "/workspace/newer/"}]`).wants(http.StatusOK).empty()
	assert.Equal(t, f.read("workspace/newer/deep/a"), "a")
	f.execd(http.MethodPost, "/files/mv", `[{"src": "b", "dest": "newer/deep/a"}]`).refuses(http.StatusConflict, "SB014")
	assert.Equal(t, f.read("workspace/newer/deep/a"), "a")
	f.execd(http.MethodPost, "/files/mv", `[{"src": "missing", "dest": "other/c"}]`).refuses(http.StatusNotFound, "SB013")
	_, err := os.Stat(filepath.Join(f.box.workspace, "other"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestFilesAreFoundByTheirOwnNames(t *testing.T) {
	f := start(t)
	for _, name := range []string{"a.py", "b.txt", "dir/c.py", "dir/sub.py/d.txt", ".hidden.py"} {
		f.write("workspace/"+name, "")
	}
	assert.NilError(t, os.Symlink("a.py", filepath.Join(f.box.workspace, "link.py")))
	for name, c := range map[string]struct{ query, want string }{
		"all of them":                    {"path=/workspace", ".hidden.py a.py b.txt dir/c.py dir/sub.py/d.txt link.py"},
		"all of them, with two stars":    {"path=/workspace&pattern=**", ".hidden.py a.py b.txt dir/c.py dir/sub.py/d.txt link.py"},
		"by the end of the name":         {"path=.&pattern=*.py", ".hidden.py a.py dir/c.py link.py"},
		"below any directory":            {"path=~&pattern=" + url.QueryEscape("**/*.py"), ".hidden.py a.py dir/c.py link.py"},
		"by alternatives":                {"path=~&pattern=" + url.QueryEscape("{a,d}.*"), "a.py dir/sub.py/d.txt"},
		"by a path, which no name is":    {"path=~&pattern=" + url.QueryEscape("dir/*.py"), ""},
		"the file where the search is":   {"path=a.py&pattern=*.py", "a.py"},
		"another than where it is":       {"path=a.py&pattern=*.txt", ""},
		"nothing where nothing is":       {"path=dir/sub.py&pattern=*.py", ""},
		"at a link, which is not walked": {"path=link.py&pattern=*", "link.py"},
	} {
		t.Run(name, func(t *testing.T) {
			var found []described
			f.execd(http.MethodGet, "/files/search?"+c.query, "").wants(http.StatusOK).decode(&found)
			assert.Equal(t, paths(found), c.want)
			assert.Assert(t, found != nil, "an empty list is a list")
		})
	}
	f.execd(http.MethodGet, "/files/search?path=missing", "").refuses(http.StatusNotFound, "SB013")
}

func TestDirectoriesAreListedToADepth(t *testing.T) {
	f := start(t)
	for _, name := range []string{"a/x/deep", "a-b", "b"} {
		f.write("workspace/dir/"+name, "")
	}
	assert.NilError(t, os.Symlink("dir", filepath.Join(f.box.workspace, "link")))
	for name, c := range map[string]struct{ query, want string }{
		"one level unless told":           {"path=dir", "dir/a dir/a-b dir/b"},
		"none":                            {"path=dir&depth=0", ""},
		"two":                             {"path=/workspace/dir&depth=2", "dir/a dir/a/x dir/a-b dir/b"},
		"more than a provider goes":       {"path=~/dir&depth=100000", "dir/a dir/a/x dir/a/x/deep dir/a-b dir/b"},
		"links are told and not followed": {"path=.&depth=2", "dir dir/a dir/a-b dir/b link"},
	} {
		t.Run(name, func(t *testing.T) {
			var found []described
			f.execd(http.MethodGet, "/directories/list?"+c.query, "").wants(http.StatusOK).decode(&found)
			assert.Equal(t, paths(found), c.want)
			assert.Assert(t, found != nil, "an empty list is a list")
		})
	}
	f.execd(http.MethodGet, "/directories/list?path=link", "").refuses(http.StatusBadRequest, "SB010")
	f.execd(http.MethodGet, "/directories/list?path=dir/b", "").refuses(http.StatusBadRequest, "SB010")
	f.execd(http.MethodGet, "/directories/list?path=missing", "").refuses(http.StatusNotFound, "SB013")
}

func TestDirectoriesAreMadeWithTheirParents(t *testing.T) {
	f := start(t)
	f.execd(http.MethodPost, "/directories", `{"a/b/c": {"mode": 700}, "~/d": null, "/workspace/e": {"mode": null, "owner": null}}`).wants(http.StatusOK).empty()
	for name, want := range map[string]os.FileMode{"a/b/c": 0o700, "d": 0o755, "e": 0o755} {
		info, err := os.Stat(filepath.Join(f.box.workspace, name))
		assert.NilError(t, err)
		assert.Equal(t, info.Mode().Perm(), want, name)
	}
	// The clients send a mode whether they were told one or not.
	f.execd(http.MethodPost, "/directories", `{"a/b/c": {"mode": 755}, "/workspace": {"mode": 755}}`).wants(http.StatusOK).empty()
	info, err := os.Stat(filepath.Join(f.box.workspace, "a/b/c"))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o700))
	f.write("workspace/file", "")
	f.execd(http.MethodPost, "/directories", `{"file": {"mode": 755}}`).refuses(http.StatusConflict, "SB014")
}

func TestTextIsReplaced(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "one two one")
	f.write("workspace/b", "one")
	counts := map[string]map[string]int{}
	f.execd(http.MethodPost, "/files/replace?verbose=true", `{"a": {"old": "one", "new": "1"}, "~/b": {"old": "two", "new": ""}}`).wants(http.StatusOK).decode(&counts)
	assert.DeepEqual(t, counts, map[string]map[string]int{"a": {"replacedCount": 2}, "~/b": {"replacedCount": 0}})
	assert.Equal(t, f.read("workspace/a"), "1 two 1")
	f.execd(http.MethodPost, "/files/replace", `{"/workspace/a": {"old": "1", "new": "one"}}`).wants(http.StatusOK).empty()
	assert.Equal(t, f.read("workspace/a"), "one two one")
	f.execd(http.MethodPost, "/files/replace", `{"missing": {"old": "1", "new": "one"}}`).refuses(http.StatusNotFound, "SB013")
}

// What is refused is refused before anything is done.
func TestWhatIsSaidOfFilesIsChecked(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "content")
	var many []string
	for n := range 1001 {
		many = append(many, fmt.Sprintf(`"%d": {"mode": 600}`, n))
	}
	long := strings.Repeat("path=a&", 1001)
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/files/info?path=", ""},
		{"GET", "/files/info?path=%zz", ""},
		{"GET", "/files/info?path=%ff", ""},
		{"GET", "/files/download?path=%ff", ""},
		{"GET", "/files/info?" + long, ""},
		{"DELETE", "/files?path=a&path=", ""},
		{"DELETE", "/directories?path=", ""},

		{"POST", "/files/permissions", ""},
		{"POST", "/files/permissions", "null"},
		{"POST", "/files/permissions", "[]"},
		{"POST", "/files/permissions", `{"a": 640}`},
		{"POST", "/files/permissions", `{"": {"mode": 640}}`},
		{"POST", "/files/permissions", `{"a": {}}`},
		{"POST", "/files/permissions", `{"a": null}`},
		{"POST", "/files/permissions", `{"a": {"mode": 0}}`},
		{"POST", "/files/permissions", `{"a": {"mode": -640}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 648}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 1777}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 6.4}}`},
		{"POST", "/files/permissions", `{"a": {"mode": "640"}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 99999999999999999999}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 640, "owner": "root"}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 640, "group": "root"}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 640, "owner": 0}}`},
		{"POST", "/files/permissions", `{"a": {"mode": 640}} {}`},
		{"POST", "/files/permissions", "{" + strings.Join(many, ",") + "}"},

		{"POST", "/directories", "7"},
		{"POST", "/directories", `{"x": {"mode": 999}}`},
		{"POST", "/directories", `{"x": {"group": "staff"}}`},
		{"POST", "/directories", `{"x": []}`},
		{"POST", "/directories", `{"x\u0000": {}}`},

		{"POST", "/files/mv", ""},
		{"POST", "/files/mv", `{"src": "a", "dest": "b"}`},
		{"POST", "/files/mv", `[{"src": "a"}]`},
		{"POST", "/files/mv", `[{"dest": "a"}]`},
		{"POST", "/files/mv", `[{"src": "a", "dest": 1}]`},
		{"POST", "/files/mv", `[{"src": "a", "dest": "b"}, null]`},
		{"POST", "/files/mv", `["a"]`},
		{"POST", "/files/mv", `[` + strings.Repeat(`{"src": "a", "dest": "b"},`, 1000) + `{"src": "a", "dest": "b"}]`},

		{"GET", "/files/search", ""},
		{"GET", "/files/search?path=a&pattern=" + url.QueryEscape("["), ""},
		{"GET", "/files/search?path=a&pattern=" + url.QueryEscape("{a"), ""},
		{"GET", "/files/search?path=a&pattern=" + strings.Repeat("x", 1001), ""},

		{"POST", "/files/replace", `[]`},
		{"POST", "/files/replace", `{"a": {"old": "", "new": "x"}}`},
		{"POST", "/files/replace", `{"a": {"new": "x"}}`},
		{"POST", "/files/replace", `{"a": {"old": 1, "new": "x"}}`},
		{"POST", "/files/replace", `{"a": null}`},
		{"POST", "/files/replace?verbose=%zz", `{"a": {"old": "c", "new": "x"}}`},

		{"GET", "/directories/list", ""},
		{"GET", "/directories/list?path=.&depth=-1", ""},
		{"GET", "/directories/list?path=.&depth=x", ""},
		{"GET", "/directories/list?path=.&depth=99999999999999999999", ""},

		{"GET", "/files/download", ""},
		{"GET", "/files/download?path=a&offset=0", ""},
		{"GET", "/files/download?path=a&offset=x", ""},
		{"GET", "/files/download?path=a&limit=0", ""},
		{"GET", "/files/download?path=a&limit=-1", ""},
	} {
		t.Run(c.method+" "+c.path[:min(len(c.path), 60)]+" "+c.body[:min(len(c.body), 60)], func(t *testing.T) {
			f.t = t
			f.execd(c.method, c.path, c.body).refuses(http.StatusBadRequest, "SB010")
		})
	}
	f.t = t
	left, err := os.ReadDir(f.box.workspace)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 1)
	assert.Equal(t, f.read("workspace/a"), "content")
}

func TestFilesOfAnotherTenantAreNotThere(t *testing.T) {
	f := start(t)
	f.write("workspace/a", "")
	for _, path := range []string{"/files/info?path=a", "/files/download?path=a", "/metrics", "/v1/isolated/capabilities", "/directories/list?path=."} {
		f.do(http.MethodGet, f.endpoint+path, "", "OPEN-SANDBOX-API-KEY: umbrella-token").refuses(http.StatusNotFound, "SB013")
		f.do(http.MethodGet, f.endpoint+path, "").refuses(http.StatusUnauthorized, "SB011")
	}
}

func TestFilesOnTheWire(t *testing.T) {
	f := start(t)
	f.write("workspace/a.txt", "one\ntwo\nthree\n")
	f.write("workspace/日本", "x")
	assert.NilError(t, os.Chmod(f.box.workspace, 0o755))
	json := "Content-Type: application/json"
	form := "Content-Type: multipart/form-data; boundary=b"
	upload := strings.ReplaceAll(`--b
Content-Disposition: form-data; name="metadata"; filename="metadata"
Content-Type: application/json

{"path": "/workspace/new/b.txt", "owner": null, "group": null, "mode": 644}
--b
Content-Disposition: form-data; name="file"; filename="b.txt"
Content-Type: application/octet-stream

content
--b--
`, "\n", "\r\n")
	for name, exchanges := range map[string][]string{
		"files_info":     {f.exchange("GET", "/files/info?path=a.txt", ""), f.exchange("GET", "/files/info", ""), f.exchange("GET", "/files/info?path=missing", "")},
		"files_upload":   {f.exchange("POST", "/files/upload", upload, form), f.exchange("POST", "/files/upload", "--b--\r\n", form)},
		"files_download": {f.exchange("GET", "/files/download?path=a.txt", ""), f.exchange("GET", "/files/download?path=a.txt", "", "Range: bytes=4-6,8-9"), f.exchange("GET", "/files/download?path=a.txt", "", "Range: bytes=99-"), f.exchange("GET", "/files/download?path=a.txt&offset=2&limit=1", ""), f.exchange("GET", "/files/download?path=%E6%97%A5%E6%9C%AC", ""), f.exchange("HEAD", "/files/download?path=a.txt", "")},
		"files_search":   {f.exchange("GET", "/files/search?path=.&pattern=a*", ""), f.exchange("GET", "/files/search?path=.&pattern=z*", "")},
		"files_replace":  {f.exchange("POST", "/files/replace?verbose=true", `{"new/b.txt": {"old": "t", "new": "T"}}`, json), f.exchange("POST", "/files/replace", `{"new/b.txt": {"old": "T", "new": "t"}}`, json)},
		"files_change": {
			f.exchange("POST", "/files/permissions", `{"new/b.txt": {"mode": 600}}`, json), f.exchange("POST", "/files/permissions", `{"new/b.txt": {"mode": 600, "owner": "root"}}`, json),
			f.exchange("POST", "/files/mv", `[{"src": "new/b.txt", "dest": "other/b.txt"}]`, json), f.exchange("DELETE", "/files?path=other/b.txt", ""), f.exchange("DELETE", "/files?path=other", ""),
		},
		"directories": {
			f.exchange("POST", "/directories", `{"dir/sub": {"mode": 700}}`, json), f.exchange("GET", "/directories/list?path=dir", ""),
			f.exchange("GET", "/directories/list?path=a.txt", ""), f.exchange("DELETE", "/directories?path=dir", "{}", json),
		},
		"isolated": {f.exchange("GET", "/v1/isolated/capabilities", ""), f.exchange("POST", "/v1/isolated/session", "{}", json), f.exchange("GET", "/v1/isolated/session/s1/files/info", "")},
		"metrics":  {f.exchange("GET", "/metrics", "")},
	} {
		t.Run(name, func(t *testing.T) { golden.Assert(t, strings.Join(exchanges, ""), name+".golden") })
	}
}

// Where a provider cannot replace a text, the broker holds the file. What comes of it is
// bounded before there is memory for it.
func TestWhatIsReplacedByWritingIsBounded(t *testing.T) {
	f := start(t, func(b *box) {
		b.Capabilities = slices.DeleteFunc(b.Capabilities, func(c sdk.Capability) bool { return c == sdk.CapabilityFileSearch })
	})
	text := strings.Repeat("a", 1<<20)
	f.write("workspace/a", text)
	f.execd(http.MethodPost, "/files/replace", `{"a": {"old": "a", "new": "`+strings.Repeat("b", 1<<19)+`"}}`).refuses(http.StatusBadRequest, "SB010") // 512 GiB
	f.execd(http.MethodPost, "/files/replace", `{"a": {"old": "a", "new": "`+strings.Repeat("b", 17)+`"}}`).refuses(http.StatusBadRequest, "SB010")
	assert.Assert(t, f.read("workspace/a") == text)
	for _, long := range []string{`{"a": {"old": "` + text + `x", "new": ""}}`, `{"a": {"old": "a", "new": "` + text + `x"}}`} {
		f.execd(http.MethodPost, "/files/replace", long).refuses(http.StatusBadRequest, "SB010")
	}
	var counts map[string]map[string]int
	f.execd(http.MethodPost, "/files/replace?verbose=true", `{"a": {"old": "a", "new": "`+strings.Repeat("b", 16)+`"}}`).wants(http.StatusOK).decode(&counts)
	assert.Equal(t, counts["a"]["replacedCount"], 1<<20)
	assert.Assert(t, f.read("workspace/a") == strings.Repeat("b", 16<<20))
}
