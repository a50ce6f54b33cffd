package tail_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/tail"
)

func TestTheEndIsKept(t *testing.T) {
	var b tail.Buffer
	for range 3 {
		_, err := b.Write([]byte(strings.Repeat("a", 4<<10)))
		assert.NilError(t, err)
	}
	_, err := b.Write([]byte("end"))
	assert.NilError(t, err)
	assert.Equal(t, len(b.String()), 8<<10)
	assert.Assert(t, strings.HasSuffix(b.String(), "aend"))
}

func TestTheLastWordsSayWhyAProgramEnded(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"nothing":             {"", ""},
		"blank lines":         {"\n \n", ""},
		"one line":            {"no such file\n", "no such file"},
		"the last of several": {"warning: slow\nrunning container: EOF\n\n", "running container: EOF"},
		"a panic of Go":       {"hello\npanic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:1 +0x99\n", "panic: boom"},
		"a fatal error of Go": {"fatal error: out of memory\n\nruntime stack:\n", "fatal error: out of memory"},
		"a very long line":    {strings.Repeat("x", 299) + "ü" + strings.Repeat("x", 100), strings.Repeat("x", 299) + "..."},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tail.LastWords(c.text), c.want) })
	}
}
