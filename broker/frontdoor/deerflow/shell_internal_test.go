package deerflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const nonce = "0123456789abcdef0123456789abcdef"

// hear has output come in pieces of a size.
func hear(output string, size int, limit int64) *heard {
	h := newHeard(nonce, 0, limit)
	for at := 0; at < len(output) && !h.ended; at += size {
		piece := output[at:min(at+size, len(output))]
		h.take(sdk.CommandOutput{Stream: sdk.Stdout, Offset: int64(at), Data: []byte(piece)})
	}
	return h
}

func TestACommandEndsWithItsMark(t *testing.T) {
	mark := "\x00" + nonce + " 7\x00"
	for name, test := range map[string]struct {
		output, text string
		ended        bool
	}{
		"nothing else":           {mark, "", true},
		"behind output":          {"a\nb\n" + mark, "a\nb\n", true},
		"without a line":         {"a" + mark, "a", true},
		"behind a NUL":           {"a\x00\x00" + mark, "a\x00\x00", true},
		"behind another mark":    {"\x00" + strings.Repeat("f", 32) + " 0\x00" + mark, "\x00" + strings.Repeat("f", 32) + " 0\x00", true},
		"not yet":                {"a\x00" + nonce + " 7", "a\x00" + nonce + " 7", false},
		"behind the first one":   {"\x00" + nonce + " b\x00a\n" + mark, "a\n", true},
		"and its beginning":      {"old\n\x00" + nonce + " b\x00" + mark, "old\n", true},
		"behind what is none":    {"\x00" + nonce + " 1234567\x00" + mark, "\x00" + nonce + " 1234567\x00", true},
		"behind what has no end": {"\x00" + nonce + " yes yes" + mark, "\x00" + nonce + " yes yes", true},
		"and before others":      {"a" + mark + "in the background", "a", true},
	} {
		for _, size := range []int{1, 2, 7, 1000} {
			t.Run(fmt.Sprint(name, " in pieces of ", size), func(t *testing.T) {
				h := hear(test.output, size, 1000)
				assert.Equal(t, h.ended, test.ended)
				assert.Equal(t, h.text(), test.text)
				if test.ended {
					assert.Equal(t, h.code, 7)
					assert.Equal(t, h.next, int64(strings.Index(test.output, mark)+len(mark)))
				}
			})
		}
	}
}

// FuzzOutput has a hostile sandbox know the nonce. Nothing that it prints is kept for longer
// than a mark is, and how it comes makes no difference.
func FuzzOutput(f *testing.F) {
	f.Add("a\x00"+nonce+" b\x00b\x00"+nonce+" 0\x00c", 3)
	f.Add("\x00"+nonce+" \x00"+nonce+" 12345"+strings.Repeat("a", 100), 1)
	f.Add("\x00\x00"+nonce[:31]+" 1\x00", 5)
	f.Fuzz(func(t *testing.T, output string, size int) {
		size = min(max(size, 1), 1<<10)
		whole, pieces := hear(output, max(len(output), 1), 50), newHeard(nonce, 0, 50)
		for at := 0; at < len(output) && !pieces.ended; at += size {
			pieces.take(sdk.CommandOutput{Stream: sdk.Stdout, Offset: int64(at), Data: []byte(output[at:min(at+size, len(output))])})
			assert.Assert(t, len(pieces.pending) <= maxMark)
			assert.Assert(t, len(pieces.output.first) <= 25 && len(pieces.output.last) <= 50+max(size, maxMark))
		}
		assert.Equal(t, pieces.ended, whole.ended)
		assert.Equal(t, pieces.code, whole.code)
		if whole.ended {
			assert.Equal(t, pieces.next, whole.next)
			assert.Assert(t, markForm.MatchString(output[:whole.next]))
		}
		assert.Equal(t, pieces.text(), whole.text())
	})
}

func TestTheEndsOfLongOutputAreShown(t *testing.T) {
	var output strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&output, "%d\n", i)
	}
	text := hear(output.String(), 333, 1000).text()
	assert.Check(t, strings.HasPrefix(text, "0\n1\n2\n"))
	assert.Check(t, strings.HasSuffix(text, "\n9998\n9999\n"))
	assert.Check(t, is.Contains(text, fmt.Sprintf("[... %d bytes of the output are not shown ...]", output.Len()-1000)))
	h := newHeard(nonce, 10, 1000)
	h.take(sdk.CommandOutput{Stream: sdk.Stdout, Offset: 10, Data: []byte("first\n")})
	h.take(sdk.CommandOutput{Stream: sdk.Stdout, Offset: 100, Data: []byte("last\n")})
	assert.Equal(t, h.text(), "first\n\n[... 84 bytes of the output are not shown ...]\nlast\n")
}

func TestTimeIsOverBeforeTheClientGivesUp(t *testing.T) {
	assert.Equal(t, early(600), 595*time.Second)
	assert.Equal(t, early(100), 99*time.Second)
	assert.Equal(t, early(0.1), 99*time.Millisecond)
}

func TestWhatIsKeptOfShellsIsBounded(t *testing.T) {
	var s shells
	for i := range 2 * maxShells {
		s.keep(shellKey{fmt.Sprint(i), "a"}, shell{})
	}
	assert.Equal(t, len(s.known), maxShells)
	s.forget(shellKey{fmt.Sprint(2*maxShells - 1), "a"})
	assert.Equal(t, len(s.known), maxShells-1)
}
