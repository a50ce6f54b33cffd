package site

import (
	"html"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// grammar is as much of a language as its colours need: where comments and strings begin and
// end, and which words are the language's own.
//
// Libraries for this match regular expressions within a time limit, and mark code in another
// way where the machine is busy: a page would not be the same twice.
type grammar struct {
	// comments begin so and go to the end of the line. A # must stand at the beginning of a
	// word.
	comments []string
	// blocks reports whether there are comments in /* and */.
	blocks   bool
	strings  []quote
	keywords []string
	// numbers reports whether what begins with a digit is a number. In a shell it is a word.
	numbers bool
}

// quote is how strings are written.
type quote struct {
	sign string // at both ends
	// raw strings have no escapes by a backslash.
	raw bool
	// lines reports whether a string may have several.
	lines bool
}

var (
	double = quote{sign: `"`}
	single = quote{sign: `'`}
)

var grammars = map[string]grammar{
	"go": {
		comments: []string{"//"}, blocks: true, strings: []quote{double, single, {sign: "`", raw: true, lines: true}},
		keywords: strings.Fields("break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var"), numbers: true,
	},
	"js": {
		comments: []string{"//"}, blocks: true, strings: []quote{double, single, {sign: "`", lines: true}},
		keywords: strings.Fields("async await break case catch class const continue default delete else export extends finally for from function if import in instanceof let new of return static switch this throw try typeof var while yield"), numbers: true,
	},
	"proto": {
		comments: []string{"//"}, blocks: true, strings: []quote{double, single},
		keywords: strings.Fields("enum extend import map message oneof optional option package repeated reserved returns rpc service stream syntax"), numbers: true,
	},
	"python": {
		comments: []string{"#"}, strings: []quote{{sign: `"""`, lines: true}, {sign: `'''`, lines: true}, double, single},
		keywords: strings.Fields("and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield"), numbers: true,
	},
	"sh": {
		comments: []string{"#"}, strings: []quote{{sign: `"`, lines: true}, {sign: `'`, raw: true, lines: true}},
		keywords: strings.Fields("case do done elif else esac fi for function if in then until while"),
	},
	"hcl":  {comments: []string{"#", "//"}, blocks: true, strings: []quote{double}, keywords: []string{"true", "false", "null"}, numbers: true},
	"json": {strings: []quote{double}, keywords: []string{"true", "false", "null"}, numbers: true},
	"yaml": {comments: []string{"#"}, strings: []quote{double, single}},
	"mod":  {comments: []string{"//"}, keywords: []string{"module", "go", "require", "replace", "exclude", "tool"}},
}

// languageOf is what a file is written in, by its name; empty for plain text.
func languageOf(file string) string {
	extension := strings.TrimPrefix(path.Ext(file), ".")
	switch extension {
	case "mjs", "ts":
		return "js"
	case "py":
		return "python"
	}
	return extension
}

// codeBlock is code with its words marked, whose colours are in the style sheet. A reader moves
// a long line with the arrow keys, for which the block must take the focus.
func codeBlock(language, code string) string {
	var out strings.Builder
	out.WriteString(`<pre tabindex="0"><code>`)
	if g, ok := grammars[language]; ok {
		g.mark(&out, code)
	} else {
		out.WriteString(html.EscapeString(code))
	}
	out.WriteString("</code></pre>\n")
	return out.String()
}

// mark writes code as HTML.
func (g grammar) mark(out *strings.Builder, code string) {
	before := ' '
	for len(code) > 0 {
		class, length := g.next(code, before)
		piece := code[:length]
		if class == "" {
			out.WriteString(html.EscapeString(piece))
		} else {
			out.WriteString(`<span class="` + class + `">` + html.EscapeString(piece) + `</span>`)
		}
		before, _ = utf8.DecodeLastRuneInString(piece)
		code = code[length:]
	}
}

// next is the first piece of code, which is not empty: what it is, and its length in bytes.
func (g grammar) next(code string, before rune) (class string, length int) {
	for _, sign := range g.comments {
		if strings.HasPrefix(code, sign) && (sign != "#" || unicode.IsSpace(before)) {
			return "comment", until(code, "\n", 0)
		}
	}
	if g.blocks && strings.HasPrefix(code, "/*") {
		end := until(code, "*/", 2)
		return "comment", min(end+2, len(code))
	}
	for _, q := range g.strings {
		if strings.HasPrefix(code, q.sign) {
			return "string", q.length(code)
		}
	}
	word := strings.IndexFunc(code, func(r rune) bool { return !isWord(r) })
	if word < 0 {
		word = len(code)
	}
	switch {
	case word == 0:
		_, length = utf8.DecodeRuneInString(code)
		return "", length
	case g.numbers && isDigit(code[0]):
		if word+1 < len(code) && code[word] == '.' && isDigit(code[word+1]) {
			_, fraction := g.next(code[word+1:], '.')
			return "number", word + 1 + fraction
		}
		return "number", word
	case slices.Contains(g.keywords, code[:word]) && before != '.' && before != '-':
		return "keyword", word
	default:
		return "", word
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// until is where a sign is, from a position on, or the end.
func until(code, sign string, from int) int {
	if at := strings.Index(code[from:], sign); at >= 0 {
		return from + at
	}
	return len(code)
}

// length is that of the string that begins the code, with both signs.
func (q quote) length(code string) int {
	for i := len(q.sign); i < len(code); i++ {
		switch {
		case strings.HasPrefix(code[i:], q.sign):
			return i + len(q.sign)
		case code[i] == '\\' && !q.raw:
			i++
		case code[i] == '\n' && !q.lines:
			return i
		}
	}
	return len(code)
}
