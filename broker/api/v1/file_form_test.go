package v1

import (
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func formOf(disposition string, n int) *multipart.Reader {
	return multipart.NewReader(strings.NewReader(strings.Repeat("--b\r\nContent-Disposition: "+disposition+"\r\n\r\nx\r\n", n)+"--b--\r\n"), "b")
}

func TestAFormHasNotAnyNumberOfFiles(t *testing.T) {
	taken := 0
	count := func(_ string, content io.Reader) error {
		taken++
		_, err := io.Copy(io.Discard, content)
		return err
	}
	assert.NilError(t, eachFile(formOf("form-data; name=f; filename=a", maxFormFiles), count))
	assert.Equal(t, taken, maxFormFiles)
	taken = 0
	err := eachFile(formOf("form-data; name=f; filename=a", maxFormFiles+1), count)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
	assert.Equal(t, taken, maxFormFiles)
}

func TestFilenamesOfForms(t *testing.T) {
	for disposition, want := range map[string]string{
		`form-data; name=f; filename="a.txt"`:                    "a.txt",
		`form-data; name=f; filename="src/main.py"`:              "src/main.py",
		`form-data; name=f; filename*=UTF-8''%e4%b8%96`:          "世",
		`form-data; name=f; filename="..a"`:                      "..a",
		`form-data; name=f; filename="a..b/c.."`:                 "a..b/c..",
		`form-data; name=f`:                                      "",
		`form-data; name=f; filename=""`:                         "",
		`form-data; name=f; filename="/etc/passwd"`:              "",
		`form-data; name=f; filename=".."`:                       "",
		`form-data; name=f; filename="../a"`:                     "",
		`form-data; name=f; filename="a/.."`:                     "",
		`form-data; name=f; filename="a/../b"`:                   "",
		`form-data; name=f; filename="."`:                        "",
		`form-data; name=f; filename="a`:                         "",
		`form-data; name=f; filename="a"; filename*=UTF-8''%2Fb`: "",
	} {
		var name string
		err := eachFile(formOf(disposition, 1), func(n string, _ io.Reader) error { name = n; return nil })
		assert.Check(t, (err == nil) == (want != ""), "%s: %v", disposition, err)
		assert.Check(t, name == want, "%s: %q", disposition, name)
	}
}
