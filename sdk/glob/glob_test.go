package glob_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

func ExampleCompile() {
	g, err := glob.Compile("**/*.{go,py}")
	fmt.Println(g.Match("main.go"), g.Match("a/b/c.py"), g.Match("a/b/c.txt"), err)
	// Output: true true false <nil>
}

func TestGlobs(t *testing.T) {
	for pattern, c := range map[string]struct{ matches, others []string }{
		"*.txt":            {[]string{"a.txt", ".txt", "é.txt"}, []string{"a.txt.x", "d/a.txt", "atxt"}},
		"?":                {[]string{"a", "é", "世"}, []string{"", "ab", "/"}},
		"é?":               {[]string{"éa"}, []string{"é", "aa"}},
		"**":               {[]string{"a", "a/b", "a/b/c"}, nil},
		"**/a":             {[]string{"a", "b/a", "b/c/a"}, []string{"ba", "a/b"}},
		"a/**":             {[]string{"a", "a/b", "a/b/c"}, []string{"ab", "b/a"}},
		"a/**/b":           {[]string{"a/b", "a/x/b", "a/x/y/b"}, []string{"ab", "a/xb"}},
		"a**b":             {[]string{"ab", "axxb"}, []string{"a/b"}},
		"{a,b/**}.x":       {[]string{"a.x"}, []string{"b.x", "a"}},
		"{a,b{c,d}}":       {[]string{"a", "bc", "bd"}, []string{"b", "c", "bcd"}},
		"x{,y}":            {[]string{"x", "xy"}, []string{"y"}},
		"{**/,}a":          {[]string{"a", "b/a"}, []string{"ba"}},
		"[a-c]":            {[]string{"a", "b", "c"}, []string{"d", "", "ab"}},
		"[!a-c]":           {[]string{"d", "é"}, []string{"a", "/"}},
		"[^a]b":            {[]string{"bb"}, []string{"ab", "/b"}},
		"a[.-9]b":          {[]string{"a.b", "a0b"}, []string{"a/b"}},
		"[]]":              {[]string{"]"}, []string{"["}},
		"[a-]":             {[]string{"a", "-"}, []string{"b"}},
		`\*`:               {[]string{"*"}, []string{"a"}},
		"a+(b)|^$":         {[]string{"a+(b)|^$"}, []string{"aab"}},
		"a\nb*":            {[]string{"a\nbc"}, []string{"a"}},
		"*":                {[]string{"a\nb", "\xff"}, []string{"a/b"}},
		"data/*/[0-9]?.cs": {[]string{"data/x/12.cs"}, []string{"data/12.cs"}},
	} {
		t.Run(pattern, func(t *testing.T) {
			g, err := glob.Compile(pattern)
			assert.NilError(t, err)
			for _, name := range c.matches {
				assert.Check(t, g.Match(name), "%q", name)
			}
			for _, name := range c.others {
				assert.Check(t, !g.Match(name), "%q", name)
			}
		})
	}
}

func TestWhatIsNoGlob(t *testing.T) {
	for _, pattern := range []string{"[", "[a", "[!", "{a", "{a,{b}", `a\`, "[z-a]", "\xff", strings.Repeat("a", glob.MaxPattern+1), strings.Repeat("{", 9) + strings.Repeat("}", 9), `[\`, "[a-"} {
		_, err := glob.Compile(pattern)
		assert.Check(t, err != nil, "%q", pattern)
	}
}

func TestTheEmptyGlobMatchesEverything(t *testing.T) {
	g, err := glob.Compile("")
	assert.NilError(t, err)
	assert.Assert(t, g.Match("a/b"))
}

// Matchers that try alternatives one after the other need sixty to the eighth steps
// here. A hundred names take a moment, not the age of the universe.
func TestNoPatternTakesForEver(t *testing.T) {
	done := make(chan error)
	go func() {
		var failed error
		for _, pattern := range []string{
			strings.Repeat("{"+strings.TrimSuffix(strings.Repeat("a,", 60), ",")+"}", 8) + "c",
			strings.Repeat("*a", 400), strings.Repeat("**/a*", 190), strings.Repeat("{a*,b*}", 140),
		} {
			g, err := glob.Compile(pattern)
			if err != nil {
				failed = err
				continue
			}
			for range 100 {
				g.Match(strings.Repeat("a", 250) + "b")
			}
		}
		done <- failed
	}()
	select {
	case err := <-done:
		assert.NilError(t, err)
	case <-time.After(4 * time.Minute):
		t.Fatal("matching goes on and on")
	}
}

// Other parts of the broker use doublestar for the same globs: both agree.
func FuzzBothGlobsAgree(f *testing.F) {
	for _, pattern := range []string{"*.txt", "**/a?", "a/**", "{a,b}/c", "[a-c]*", "a/**/b"} {
		f.Add(pattern, "a/b/c.txt")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 40 || strings.Count(pattern, "{") > 3 {
			t.Skip("the pattern is too large")
		}
		g, err := glob.Compile(pattern)
		if err == nil {
			g.Match(name)
		}
		if err != nil || !plain(pattern) || !plain(name) || !doublestar.ValidatePattern(pattern) {
			return
		}
		want := doublestar.MatchUnvalidated(pattern, name)
		assert.Equal(t, g.Match(name), want, "%q %q", pattern, name)
	})
}

// plain leaves out where the two differ on purpose: classes, braces, escapes, and
// paths that no list of files has.
func plain(text string) bool {
	return text != "" && strings.Trim(text, "abc*?/.") == "" && !strings.Contains(text, "//") && !strings.HasPrefix(text, "/") && !strings.HasSuffix(text, "/") && !strings.Contains(text, "***")
}
