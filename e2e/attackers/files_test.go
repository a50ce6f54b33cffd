package attackers

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// archived is one entry of a tar archive, and no end.
func archived(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	assert.NilError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
	_, err := w.Write([]byte(content))
	assert.NilError(t, err)
	assert.NilError(t, w.Flush())
	return b.String()
}

func zipped(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(content))
	assert.NilError(t, err)
	assert.NilError(t, w.Close())
	return b.String()
}

// ofFiles are those by names, patterns, archives and forms.
func ofFiles(t *testing.T) []class {
	t.Helper()
	refused := []int{400, 413, 415, 422}
	// Each of these names as many letters as a file of the victim's has, which ends otherwise.
	braces := strings.Repeat("{"+strings.Repeat("a,", 59)+"a}", 8) + "c"
	upload := func(name, lines, body string) attack {
		return attack{name: name, request: "PUT {victim}/archive?directory=/workspace", lines: "Content-Type: application/x-tar\r\n" + lines, body: body, status: refused, says: "cut off"}
	}
	whole := archived(t, "a", strings.Repeat("x", 2000))
	form := func(filename, content string) (lines, body string) {
		return "Content-Type: multipart/form-data; boundary=b\r\n",
			"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + filename + "\"\r\n\r\n" + content + "\r\n--b--\r\n"
	}
	inForm := func(name, filename string) attack {
		lines, body := form(filename, "x")
		return attack{name: name, request: "POST {victim}/files?directory=/workspace", lines: lines, body: body, status: refused, says: "must be relative", holds: func(t *testing.T, s *scene, _ harness.Answer) {
			answer := s.b.Do(http.MethodGet, s.victim+"/files?glob=**/passwd", harness.Token, nil)
			assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
			for _, outside := range []string{"/workspace/passwd", "/workspace/etc/passwd"} {
				assert.Check(t, !strings.Contains(string(answer.Body), `"`+outside+`"`), "%s", answer.Body)
			}
			assert.Equal(t, s.b.Do(http.MethodGet, s.victim+"/files/stat?path=passwd", harness.Token, nil).Status, http.StatusNotFound)
		}}
	}
	isText := func(t *testing.T, _ *scene, answer harness.Answer) {
		assert.Check(t, utf8.Valid(answer.Body))
	}
	return []class{
		{"names that are no UTF-8", []attack{
			{
				name: "of an artifact", request: "POST {victim}/execute", status: []int{200},
				body: jsonOf(t, map[string]any{"language": "python", "code": "import os\nos.makedirs('artifacts', exist_ok=True)\nopen(b'artifacts/\\xb1\\xa8.csv', 'w').write('1')\nprint('an hour of work')"}),
				holds: func(t *testing.T, s *scene, answer harness.Answer) {
					isText(t, s, answer)
					var e harness.Execution
					answer.Into(t, &e)
					assert.Check(t, is.Equal(e.Status+" "+e.Stdout, "succeeded an hour of work\n"))
					assert.Check(t, is.Len(e.Artifacts, 1))
				},
			},
			{
				name: "of a file that is asked for as an artifact", request: "POST {victim}/execute", status: []int{200}, holds: isText,
				body: jsonOf(t, map[string]any{"language": "python", "code": "open(b'\\xff\\xfe.csv', 'w').write('1')", "artifacts": map[string]any{"files": []string{"*.csv"}}}),
			},
			{name: "in a listing", request: "GET {victim}/files?glob=**", status: []int{200}, holds: isText},
			{name: "in a search", request: "POST {victim}/files/search", body: `{"pattern":"1"}`, status: []int{200}, holds: isText},
			{name: "in an archive", request: "GET {victim}/archive", status: []int{200}},
			{name: "in a path", request: "GET {victim}/files/content?path=%ff%fe", status: []int{400, 404, 422}, holds: isText},
			{name: "in a body", request: "POST {victim}/files/directories", body: "{\"path\":\"\xff\xfe\"}", status: refused, holds: isText},
		}},
		{"patterns without end", []attack{
			{name: "a glob of 60^8", request: "GET {victim}/files?glob=" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(braces), status: append([]int{200}, refused...)},
			{name: "a glob of 25^6", request: "GET {victim}/files?glob=" + strings.Repeat("%7B"+strings.Repeat("a,", 24)+"a%7D", 6) + "c", status: append([]int{200}, refused...)},
			{name: "a search of a million steps", request: "POST {victim}/files/search", body: `{"pattern":"(?i)([a-z]{1000}){1000}"}`, status: refused, says: "repeat count"},
			{name: "a search of many repetitions", request: "POST {victim}/files/search", body: jsonOf(t, map[string]any{"pattern": strings.Repeat("[a-z]{1000}", 50)}), status: refused, says: "repetitions"},
			{name: "artifacts by a glob of 60^8", request: "POST {victim}/execute", body: jsonOf(t, map[string]any{"language": "python", "code": "1", "artifacts": map[string]any{"files": []string{braces}}}), status: append([]int{200}, refused...)},
		}},
		{"archives that were cut", []attack{
			upload("an empty one", "", ""),
			upload("behind an entry", "", whole),
			upload("amid an entry", "", whole[:1000]),
			upload("amid a header", "", whole[:300]),
			upload("in gzip, behind an entry", "Content-Encoding: gzip\r\n", zipped(t, whole)),
			upload("in gzip that was cut", "Content-Encoding: gzip\r\n", zipped(t, whole+strings.Repeat("\x00", 1024))[:20]),
		}},
		{"forms and bombs", []attack{
			{name: "a form for an execution", request: "POST {victim}/execute", lines: "Content-Type: multipart/form-data; boundary=b\r\n", body: "--b--\r\n", status: []int{415}},
			{name: "a bomb for an execution", request: "POST {victim}/execute", lines: "Content-Encoding: gzip\r\n", body: zipped(t, `{"language":"python","code":"`+strings.Repeat("#", 8<<20)+`"}`), status: []int{415}},
			{name: "a bomb for an archive", request: "PUT {victim}/archive?directory=/workspace", lines: "Content-Type: application/x-tar\r\nContent-Encoding: gzip\r\n", body: zipped(t, archived(t, "bomb", strings.Repeat("\x00", 64<<20))+strings.Repeat("\x00", 1024)), status: refused, says: "SB010"},
			inForm("a file above its directory", "../passwd"),
			inForm("a file at the root", "/workspace/passwd"),
			{name: "a form without an end", request: "POST {victim}/files?directory=/workspace", lines: "Content-Type: multipart/form-data; boundary=b\r\n", body: "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"cut\"\r\n\r\nhalf", status: refused, says: "no whole form"},
		}},
	}
}
