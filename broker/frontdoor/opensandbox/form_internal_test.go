package opensandbox

import (
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// FuzzUploadForm reads forms that no client wrote: each ends with a refusal, or every file
// had its metadata before it.
func FuzzUploadForm(f *testing.F) {
	meta, file := "--b\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\r\n{\"path\":\"a\"}\r\n", "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ncontent\r\n"
	for _, seed := range []string{meta + file + "--b--\r\n", meta + meta + file + file + "--b--", file + meta + "--b--", meta + "--b--", "--b--", "", "--b\r\n\r\n\r\n--b--", meta + strings.TrimSuffix(file, "\r\n")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		taken := 0
		err := eachUpload(multipart.NewReader(strings.NewReader(body), "b"), func(to fileMetadata, content io.Reader) error {
			taken++
			assert.Assert(t, to.Path != "")
			n, err := io.Copy(io.Discard, content)
			assert.Assert(t, n <= int64(len(body)))
			if err != nil {
				return sdk.Errorf(sdk.CodeInvalidRequest, "cut off")
			}
			return nil
		})
		if err == nil {
			assert.Assert(t, taken > 0 && taken <= strings.Count(body, "--b"))
		} else {
			assert.Assert(t, errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidRequest}), "%v", err)
		}
	})
}

// FuzzReadObject reads bodies that no client wrote: each is refused, or has nothing that is
// not known but what is empty.
func FuzzReadObject(f *testing.F) {
	for _, seed := range []string{`{"code":"1"}`, `{"code":"1","x":null,"context":{"id":"","y":1}}`, `{"context":[{}]}`, `[]`, `{"Code":"1"}`, `{"code":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var into struct {
			Code    string `json:"code"`
			Context *struct {
				ID string `json:"id"`
			} `json:"context"`
		}
		if err := readObject(body, &into); err != nil {
			assert.Assert(t, errors.Is(err, &sdk.Error{Code: sdk.CodeInvalidRequest}), "%v", err)
			return
		}
		var all struct{ Fields, Context map[string]json.RawMessage }
		assert.NilError(t, json.Unmarshal(body, &all.Fields))
		if context := all.Fields["context"]; context != nil {
			assert.NilError(t, json.Unmarshal(context, &all.Context))
		}
		delete(all.Fields, "code")
		delete(all.Fields, "context")
		delete(all.Context, "id")
		for _, unknown := range []map[string]json.RawMessage{all.Fields, all.Context} {
			for name, value := range unknown {
				assert.Assert(t, isNothing(value), name)
			}
		}
	})
}

// FuzzLineRange cuts texts in lines as strings.SplitAfter does, however they arrive.
func FuzzLineRange(f *testing.F) {
	f.Add("one\ntwo\n\nfour", 2, 2, 3)
	f.Add("", 1, 1, 1)
	f.Add("\n\n\n", 2, 1, 1)
	f.Fuzz(func(t *testing.T, text string, first, count, piece int) {
		first, count, piece = max(first, 1), max(count, 1), min(max(piece, 1), 1<<10)
		var want string
		for n, line := range strings.SplitAfter(text, "\n") {
			if n+1 >= first && n+1-first < count {
				want += line
			}
		}
		var got strings.Builder
		_, err := io.CopyBuffer(&got, struct{ io.Reader }{frontdoor.NewLines(strings.NewReader(text), first-1, count)}, make([]byte, piece))
		assert.NilError(t, err)
		assert.Equal(t, got.String(), want)
	})
}
