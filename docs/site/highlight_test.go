package site

import (
	"html"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
)

func TestWhatIsMarkedInCode(t *testing.T) {
	for name, c := range map[string]struct{ language, code, want string }{
		"plain text":                    {"text", "if <a>\n", "if &lt;a&gt;\n"},
		"a language that nobody knows":  {"cobol", "IF 1", "IF 1"},
		"Go":                            {"go", `return x.type + "a\"b" // "c"`, `<span class="keyword">return</span> x.type + <span class="string">&#34;a\&#34;b&#34;</span> <span class="comment">// &#34;c&#34;</span>`},
		"a rune that is a quote":        {"go", `'"' + 0x1F`, `<span class="string">&#39;&#34;&#39;</span> + <span class="number">0x1F</span>`},
		"a number with a fraction":      {"json", `[4.863, 12]`, `[<span class="number">4.863</span>, <span class="number">12</span>]`},
		"an address in a shell":         {"sh", "http://127.0.0.1:9385 2>&1", "http://127.0.0.1:9385 2&gt;&amp;1"},
		"a comment of two lines":        {"go", "/* a\nb */c", "<span class=\"comment\">/* a\nb */</span>c"},
		"a comment that does not end":   {"go", "/* a", `<span class="comment">/* a</span>`},
		"a string that does not end":    {"go", "\"a\nb", "<span class=\"string\">&#34;a</span>\nb"},
		"an escape at the end":          {"go", `"a\`, `<span class="string">&#34;a\</span>`},
		"a string of several lines":     {"sh", "-d '{\n\\'", "-d <span class=\"string\">&#39;{\n\\&#39;</span>"},
		"a sign that begins no comment": {"sh", "echo $# a#b # c", `echo $# a#b <span class="comment"># c</span>`},
		"a flag that is like a keyword": {"sh", "x --for for", `x --for <span class="keyword">for</span>`},
		"three quotes":                  {"python", `"""a "b" c""" d`, `<span class="string">&#34;&#34;&#34;a &#34;b&#34; c&#34;&#34;&#34;</span> d`},
		"letters of other alphabets":    {"go", "größe := \"世界\"", `größe := <span class="string">&#34;世界&#34;</span>`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, codeBlock(c.language, c.code), "<pre tabindex=\"0\"><code>"+c.want+"</code></pre>\n")
		})
	}
}

var tag = regexp.MustCompile(`</?(pre|code|span)[^<>]*>`)

// Whatever is marked, nothing of the code is lost or added.
func FuzzMark(f *testing.F) {
	for language := range grammars {
		f.Add(language, "a \"b\\\" 'c' `d` # e\n// f /* g */ 1 if\x00\xff")
	}
	f.Fuzz(func(t *testing.T, language, code string) {
		got := html.UnescapeString(tag.ReplaceAllString(codeBlock(language, code), ""))
		want := html.UnescapeString(html.EscapeString(code))
		assert.Equal(t, got, want+"\n")
	})
}
