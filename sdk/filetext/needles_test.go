package filetext //nolint:testpackage // the fuzz test asks an expression itself

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func written(needles [][][]string) string {
	var all []string
	for _, needle := range needles {
		text := ""
		for _, forms := range needle {
			if len(forms) == 1 {
				text += forms[0]
			} else {
				text += "[" + strings.Join(forms, "") + "]"
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestNeedles(t *testing.T) {
	for pattern, want := range map[string]string{
		"import": "import", "^import$": "import", `a\.b`: "a.b", `\w+`: "", ".*": "", "a?": "", "(abc)+d": "abc", "x{3}": "x", "x{0,2}": "",
		"foo|bar": "foo bar", "foo|.": "", "(?i)ask": "[Aa][SsſS][KkK]", "é": "é", "\uFFFD": "", "ab\uFFFDcde": "cde", `def \w+\(self`: "(self",
		"a|b|c": "", "fo(o|bar)x": "fo",
	} {
		s, err := NewSearch(sdk.SearchFilesRequest{Pattern: pattern, Limit: 1}, nil)
		assert.NilError(t, err, pattern)
		if strings.HasPrefix(pattern, "(?i)") { // each with its forms, in an order of Unicode's
			for i, forms := range []string{"Aa", "Ssſ", "Kk\u212a"} {
				got := strings.Join(s.Needles()[0][i], "")
				assert.Equal(t, len(got), len(forms), pattern)
				for _, r := range forms {
					assert.Assert(t, strings.ContainsRune(got, r), "%q", got)
				}
			}
			continue
		}
		assert.Equal(t, written(s.Needles()), want, pattern)
	}
	long, err := NewSearch(sdk.SearchFilesRequest{Pattern: strings.Repeat("x", 1000), Literal: true, Limit: 1}, nil)
	assert.NilError(t, err)
	assert.Equal(t, written(long.Needles()), strings.Repeat("x", maxPlaces))
}

// has reports whether a line has one of the needles.
func has(line []byte, needles [][][]string) bool {
	var from func(rest []byte, needle [][]string) bool
	from = func(rest []byte, needle [][]string) bool {
		if len(needle) == 0 {
			return true
		}
		for _, form := range needle[0] {
			if bytes.HasPrefix(rest, []byte(form)) && from(rest[len(form):], needle[1:]) {
				return true
			}
		}
		return false
	}
	for at := range len(line) + 1 {
		for _, needle := range needles {
			if from(line[at:], needle) {
				return true
			}
		}
	}
	return false
}

// A line that matches has a needle, whatever the pattern is.
func FuzzNeedles(f *testing.F) {
	for pattern, line := range map[string]string{"(?i)k+s": "\u212aſ", "a|bc": "xbcx", "\uFFFDx": "\xffx", "(ab){2}c": "ababc", "a.\uFFFD": "ab\xc3"} {
		f.Add(pattern, []byte(line))
	}
	f.Fuzz(func(t *testing.T, pattern string, line []byte) {
		e, err := compileBounded(pattern)
		if err != nil || len(pattern) > 100 || len(line) > 1000 {
			return
		}
		needles := needlesOf(e.parsed)
		if len(needles) == 0 {
			return
		}
		at, err := e.find(context.Background(), line)
		assert.NilError(t, err)
		assert.Assert(t, at < 0 || has(line, needles), fmt.Sprintf("%q matches %q, which has none of %q", pattern, line, needles))
	})
}
