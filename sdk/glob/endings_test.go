package glob_test

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

func TestEndings(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "", "*": "", "**": "", "a/**": "", "a*": "", "a?": "", "[^a]": "", "*.{go,}": ".|.go", "{a,**}": "", "*.\uFFFD": "",
		"*.py": ".py", "**/*.py": ".py", "src/*_test.go": "_test.go", "a/b": "a/b", "*.{ts,tsx,js}": ".js|.ts|.tsx",
		"*.[ch]": ".c|.h", "**/{a,b}": "a|b", `\*`: "*", "*{a,b}{c,d}": "ac|ad|bc|bd", "*.[a-zA-Z]": "", "**/Makefile": "Makefile",
	} {
		g, err := glob.Compile(pattern)
		assert.NilError(t, err, pattern)
		got := g.Endings()
		slices.Sort(got)
		assert.Equal(t, strings.Join(got, "|"), want, pattern)
	}
}

// What matches ends with one of the endings, whatever the pattern is.
func FuzzEndings(f *testing.F) {
	for pattern, name := range map[string]string{"**/*.{a,b}c": "x/y.bc", "[!a]{x,[a-c]}?": "bxé", "{,a}{b,}": "ab", "*\uFFFD": "a\xff"} {
		f.Add(pattern, name)
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := glob.Compile(pattern)
		if err != nil || !g.Match(name) {
			return
		}
		ends := g.Endings()
		known := len(ends) == 0 || slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
		assert.Assert(t, known, "%q matches %q, which ends with none of %q", pattern, name, ends)
	})
}
