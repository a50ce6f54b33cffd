package deerflow

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
)

// written is what a body writes, and where.
func writtenBy(body io.Reader) (name, content string, err error) {
	b := newWriting(body)
	name, c, err := b.begin()
	if err != nil {
		return "", "", b.explain(err)
	}
	text, err := io.ReadAll(c)
	return name, string(text), b.explain(err)
}

func TestABodyThatWritesAFile(t *testing.T) {
	plain := strings.Repeat("plain text, ", maxAhead/8)
	ambiguous := strings.Repeat("abcd", maxAhead/4+1)
	bytes := strings.Repeat("\x00\xff binary", maxAhead/4)
	coded := base64.StdEncoding.EncodeToString([]byte(bytes))
	for name, test := range map[string]struct{ body, content, refused string }{
		"a text":                              {`{"file":"/a","content":"x\n\"y\" \\ \/ \b\f\r\t \u00e9 é \ud83e\udd8c"}`, "x\n\"y\" \\ / \b\f\r\t é é 🦌", ""},
		"with spaces":                         {" {\n \"file\" : \"/a\" ,\t\"content\" : \"x\" } \n", "x", ""},
		"nothing":                             {`{"file":"/a","content":""}`, "", ""},
		"half of a character":                 {`{"file":"/a","content":"\ud83ex\udd8c\ud83e\u0041"}`, "\uFFFDx\uFFFD\uFFFDA", ""},
		"a text that looks like base64":       {`{"file":"/a","content":"abcd"}`, "abcd", ""},
		"base64":                              {`{"file":"/a","content":"AP8=","encoding":"base64"}`, "\x00\xff", ""},
		"base64 that is told before":          {`{"encoding":"base64","content":"AP8=","file":"/a"}`, "\x00\xff", ""},
		"what else is said":                   {`{"file":"/a","content":"x","encoding":"utf-8","append":false,"sudo":null,"other":{"a":["}"]},"n":-1.5e3,"t":true}`, "x", ""},
		"a large text":                        {`{"file":"/a","content":"` + plain + `"}`, plain, ""},
		"large base64":                        {`{"file":"/a","content":"` + coded + `","encoding":"base64"}`, bytes, ""},
		"a large text that looks like base64": {`{"file":"/a","content":"` + ambiguous + `"}`, "", "encoding: must come before"},
		"one that is told before":             {`{"encoding":"utf-8","file":"/a","content":"` + ambiguous + `"}`, ambiguous, ""},
		"large base64 that looks like a text": {`{"file":"/a","content":"` + plain + `","encoding":"base64"}`, "", "encoding: must come before"},
		"a name behind a large text":          {`{"content":"` + plain + `","file":"/a"}`, "", "file: must come before"},
		"no base64":                           {`{"file":"/a","content":"A","encoding":"base64"}`, "", "content: is not what base64 makes"},
		"base64 that is cut off":              {`{"encoding":"base64","file":"/a","content":"` + coded[:len(coded)-1] + `"}`, "", "content: is not what base64 makes"},
		"another encoding":                    {`{"file":"/a","content":"A","encoding":"latin-1"}`, "", "encoding: must be"},
		"another one behind a large text":     {`{"file":"/a","content":"` + plain + `","encoding":"latin-1"}`, "", "encoding: must be"},
		"an encoding that is none":            {`{"file":"/a","content":"A","encoding":1}`, "", "Input should be a valid string"},
		"more to append":                      {`{"file":"/a","content":"A","append":true}`, "", "append: is not served"},
		"more to append, said behind":         {`{"file":"/a","content":"` + plain + `","append":true}`, "", "append: is not served"},
		"as another user":                     {`{"file":"/a","content":"A","sudo":true}`, "", "sudo: is not served"},
		"a relative name":                     {`{"file":"a","content":"A"}`, "", "file: must be an absolute path"},
		"no name":                             {`{"content":"A"}`, "", "Field required"},
		"no content":                          {`{"file":"/a"}`, "", "Field required"},
		"a content that is no text":           {`{"file":"/a","content":{}}`, "", "Input should be a valid string"},
		"a content twice":                     {`{"file":"/a","content":"A","content":"B"}`, "", "this one twice"},
		"a name twice":                        {`{"file":"/a","file":"/b","content":"A"}`, "", "this one twice"},
		"too many fields":                     {`{` + strings.Repeat(`"a":1,`, 1) + `"b":` + strings.Repeat("[", maxField+2), "", "is too long"},
		"no body":                             {"", "", "Field required"},
		"no object":                           {`[]`, "", "valid dictionary"},
		"no JSON":                             {`{"file":"/a","content":"A"`, "", "JSON decode error"},
		"a comma at the end":                  {`{"file":"/a","content":"A",}`, "", "JSON decode error"},
		"something behind it":                 {`{"file":"/a","content":"A"}x`, "", "JSON decode error"},
		"something behind a large one":        {`{"file":"/a","content":"` + plain + `"}x`, "", "JSON decode error"},
		"a line's end in a text":              {"{\"file\":\"/a\",\"content\":\"A\n\"}", "", "JSON decode error"},
		"what is no UTF-8":                    {"{\"file\":\"/a\",\"content\":\"A\xff\"}", "", "JSON decode error"},
		"an escape that is none":              {`{"file":"/a","content":"\x41"}`, "", "JSON decode error"},
		"digits that are none":                {`{"file":"/a","content":"\u00g0"}`, "", "JSON decode error"},
	} {
		t.Run(name, func(t *testing.T) {
			file, content, err := writtenBy(strings.NewReader(test.body))
			if test.refused != "" {
				assert.ErrorContains(t, problemOf(err), test.refused)
				return
			}
			assert.NilError(t, err)
			assert.Equal(t, file, "/a")
			assert.Assert(t, content == test.content, "%d bytes, and not %d", len(content), len(test.content))
		})
	}
}

// The most of the file has been read already.
func TestAFileIsBounded(t *testing.T) {
	for read, refused := range map[int64]string{maxFile - 4: "", maxFile - 3: "larger than 100 MiB"} {
		_, c, err := newWriting(strings.NewReader(`{"file":"/a","content":"text"}`)).begin()
		assert.NilError(t, err)
		c.count = read
		content, err := io.ReadAll(c)
		if refused == "" {
			assert.NilError(t, err)
			assert.Equal(t, string(content), "text")
			continue
		}
		assert.ErrorContains(t, problemOf(err), refused)
	}
}

// problemOf is what a client reads of an error.
func problemOf(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(problem(err, "").Body.(refusal).Message)
}

func TestABodyThatBreaksOff(t *testing.T) {
	broken := errors.New("reset")
	for _, begun := range []string{"", `{"fi`, `{"file":"/a","content":"abc`, `{"file":"/a","content":"abc","enc`, `{"file":"/a","content":"` + strings.Repeat("text ", maxAhead)} {
		_, _, err := writtenBy(io.MultiReader(strings.NewReader(begun), iotest.ErrReader(broken)))
		if begun == "" {
			assert.ErrorContains(t, err, "broke off")
			continue
		}
		refused, ok := errors.AsType[*rest.Error](err)
		assert.Assert(t, ok && strings.Contains(refused.Detail, "broke off"), "%s: %v", begun[:min(len(begun), 40)], err)
	}
}

// FuzzBody has what encoding/json makes of a body as what is right.
func FuzzBody(f *testing.F) {
	f.Add(`{"file":"/a","content":"x\n\ud83e\udd8c","encoding":"base64"}`)
	f.Add(`{"content":"YWJj","encoding":"base64","file":"/a"}`)
	f.Add(`{"file":"/a","n":[1,{"a":"}\""}],"content":"\ud83e"}`)
	f.Fuzz(func(t *testing.T, body string) {
		name, content, err := writtenBy(iotest.OneByteReader(strings.NewReader(body)))
		if err != nil {
			assert.Assert(t, problemOf(err).Error() != "")
			return
		}
		var want struct {
			File, Content, Encoding *string
		}
		fields := map[string]json.RawMessage{}
		assert.NilError(t, json.Unmarshal([]byte(body), &fields))
		for from, into := range map[string]**string{"file": &want.File, "content": &want.Content, "encoding": &want.Encoding} {
			if raw, given := fields[from]; given {
				assert.NilError(t, json.Unmarshal(raw, into))
			}
		}
		assert.Equal(t, name, *want.File)
		if want.Encoding != nil && *want.Encoding == encodingBase64 {
			decoded, err := base64.StdEncoding.DecodeString(*want.Content)
			assert.NilError(t, err)
			assert.Equal(t, content, string(decoded))
			return
		}
		assert.Equal(t, content, *want.Content)
	})
}

func FuzzText(f *testing.F) {
	f.Add(`"a\u00e9\ud83e\udd8c\n"`, 3)
	f.Add(`"\ud83e\ud83e\udd8c"`, 1)
	f.Fuzz(func(t *testing.T, raw string, piece int) {
		if piece < 1 || piece > 100 || !strings.HasPrefix(raw, `"`) {
			return
		}
		from := bufio.NewReaderSize(strings.NewReader(raw[1:]), 16)
		got, err := readAll(&jsonString{from: from}, piece)
		if err != nil {
			return
		}
		left, _ := io.ReadAll(from)
		var want string
		assert.NilError(t, json.Unmarshal([]byte(raw[:len(raw)-len(left)]), &want), "%q", raw)
		assert.Equal(t, got, want)
	})
}

func readAll(from io.Reader, piece int) (string, error) {
	var all strings.Builder
	_, err := io.CopyBuffer(struct{ io.Writer }{&all}, struct{ io.Reader }{from}, make([]byte, piece))
	return all.String(), err
}

func FuzzBodies(f *testing.F) {
	f.Add(`{"sandbox_id":"a","thread_id":null,"extra_mounts":[{"host_path":"/a","container_path":"/mnt/skills/custom"}]}`)
	f.Add(`{"command":"a","no_change_timeout":600,"id":"x","hard_timeout":1e300}`)
	f.Add(`{"path":"/a","pattern":"a","max_results":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, body string) {
		if req, err := readCreate([]byte(body)); err == nil {
			assert.Assert(t, sandboxID.MatchString(req.id) && len(req.mounts) <= maxMounts)
		}
		if req, err := readShellExec([]byte(body)); err == nil {
			assert.Assert(t, req.silence > 0 && req.silence <= maxSilence && req.limit >= 0 && req.limit <= maxSilence && sessionForm.MatchString(req.session))
		}
		if req, err := readBashExec([]byte(body)); err == nil {
			assert.Assert(t, req.limit > 0 && req.limit <= maxSilence)
		}
		if req, err := readGrep([]byte(body)); err == nil {
			assert.Assert(t, is.Equal(req.path[0], byte('/')))
			assert.Assert(t, req.limit > 0 && req.limit <= maxMatches)
		}
	})
}
