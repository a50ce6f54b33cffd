package config

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// hidden stands for a secret in an excerpt.
const hidden = "(hidden)"

// source is the text of a file, of which excerpts are shown.
type source struct {
	name string
	// order of the file among the others.
	order int
	lines []sourceLine
}

type sourceLine struct {
	start int // byte offset in the file
	text  string
	// hideFrom is where in text begins what may be secret; len(text) if
	// nothing is.
	hideFrom int
}

// newSource finds out which parts of the lines may be shown. It looks at the
// text alone: it must also be right about a file that does not parse, whose
// mistake may well stand in the line with the password. So everything is hidden
// but the values of the broker's own settings.
func newSource(name string, order int, text []byte) *source {
	src := &source{name: name, order: order}
	guard := excerptGuard{open: true}
	start := 0
	for raw := range bytes.Lines(text) {
		line := strings.TrimRight(string(raw), "\r\n")
		hideFrom := guard.hideFrom(line)
		if own := ownSecret.FindStringIndex(line); own != nil {
			hideFrom = min(hideFrom, own[0])
		}
		src.lines = append(src.lines, sourceLine{start: start, text: line, hideFrom: hideFrom})
		start += len(raw)
	}
	return src
}

// excerpt shows the first line of a range. A trusted range stands in a setting
// that is known not to be secret, so that nothing of its line is hidden.
func (s *source) excerpt(rng hcl.Range, trusted bool) Excerpt {
	if rng.Start.Line < 1 || rng.Start.Line > len(s.lines) {
		return Excerpt{}
	}
	line := s.lines[rng.Start.Line-1]
	from := min(max(rng.Start.Byte-line.start, 0), len(line.text))
	to := len(line.text)
	if rng.End.Line == rng.Start.Line {
		to = min(max(rng.End.Byte-line.start, from), len(line.text))
	}
	text := line.text
	if !trusted && line.hideFrom < len(text) {
		text = text[:line.hideFrom] + hidden
		if to > line.hideFrom {
			to = len(text)
		}
		from = min(from, line.hideFrom)
	}
	return Excerpt{Text: text, From: from, To: to}
}

// excerptGuard decides line by line what may be shown.
type excerptGuard struct {
	inProvider bool
	// open says that the current statement is one whose value may be shown;
	// its further lines then may be too.
	open bool
	// heredoc is the word that ends the text in which the guard stands.
	heredoc string
	// inSums says that the list of token_sha256 goes on.
	inSums bool
}

const referenceForm = `((env|file)\("[\w./-]*"\)|sealed\("sb1:[0-9a-f]{8}:[\w-]{38,}"\))`

// ownSecret begins the tokens and keys that the broker makes. They stand in no
// configuration but by mistake.
var ownSecret = regexp.MustCompile(`sbk(ey)?_`)

var (
	assignment   = regexp.MustCompile(`([\pL_][\pL\pN_-]*)\s*=[^=]`)
	ownBlock     = regexp.MustCompile(`^(provider|providers|tenant|admin|log|metrics|tls|limits)\b(\s+"[^"]*")*\s*(\{|$)`)
	otherBlock   = regexp.MustCompile(`^[\pL_][\pL\pN_-]*\s*\{`)
	firstWord    = regexp.MustCompile(`^[\pL_][\pL\pN_-]*`)
	heredocStart = regexp.MustCompile(`<<-?\s*([\pL_][\pL\pN_-]*)\s*$`)
	// reference is a value that tells where a secret is and not the secret.
	reference     = regexp.MustCompile(`^` + referenceForm + `$`)
	sumOrComma    = regexp.MustCompile(`^("[0-9A-Fa-f]{64}"|` + referenceForm + `|,)`)
	statementName = regexp.MustCompile(`^([\pL_][\pL\pN_-]*)\s*=\s*[^=\s]`)
)

// hideFrom returns the offset in line where the hidden part begins.
func (g *excerptGuard) hideFrom(line string) int {
	if g.heredoc != "" {
		if strings.TrimSpace(line) == g.heredoc {
			g.heredoc = ""
		}
		if g.open {
			return len(line)
		}
		return 0
	}
	if m := heredocStart.FindStringSubmatch(line); m != nil {
		g.heredoc = m[1]
	}
	at := 0
	if g.inSums {
		stray := false
		if at, stray = g.sums(line); stray {
			g.open = false
			return at
		}
	}
	for {
		rest := strings.TrimLeft(line[at:], " \t")
		at = len(line) - len(rest)
		if rest == "" {
			return len(line)
		}
		if rest[0] == '}' {
			g.inProvider = false
			at++
			continue
		}
		if rest[0] == '#' || strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") {
			return at
		}
		if m := statementName.FindStringSubmatch(rest); m != nil {
			g.open = true
			hide := at + g.firstForeign(rest)
			g.open = hide == len(line)
			return hide
		}
		if m := ownBlock.FindStringSubmatch(rest); m != nil {
			g.inProvider = m[1] == "provider"
			g.open = true
			at += len(m[0])
			continue
		}
		if m := otherBlock.FindString(rest); m != "" {
			g.open = false
			at += len(m)
			continue
		}
		word := firstWord.FindString(rest)
		switch {
		case !g.open:
			return at
		case word == "" || g.own(word):
			return at + g.firstForeign(rest)
		default: // such as a name whose equals sign was forgotten
			g.open = false
			return at + len(word)
		}
	}
}

// firstForeign returns where the value of the first setting begins that is not
// the broker's own, or the length of text.
func (g *excerptGuard) firstForeign(text string) int {
	for _, m := range assignment.FindAllStringSubmatchIndex(text, -1) {
		value := strings.TrimLeft(text[m[1]-1:], " \t")
		name := text[m[2]:m[3]]
		if !g.own(name) && !reference.MatchString(value) {
			return len(text) - len(value)
		}
		if name == tokenSums {
			if at, stray := g.sums(strings.TrimPrefix(value, "[")); stray {
				return len(text) - len(strings.TrimPrefix(value, "[")) + at
			}
		}
	}
	return len(text)
}

// sums reads the value of token_sha256, or a further line of it: who mistakes the
// setting puts the token itself there. It returns where the sums end, and whether
// something follows that is none.
func (g *excerptGuard) sums(text string) (end int, stray bool) {
	rest := strings.TrimLeft(text, " \t")
	for item := sumOrComma.FindString(rest); item != ""; item = sumOrComma.FindString(rest) {
		rest = strings.TrimLeft(rest[len(item):], " \t")
	}
	g.inSums = !strings.ContainsAny(rest, "]}")
	if after, closed := strings.CutPrefix(rest, "]"); closed {
		rest = strings.TrimLeft(after, " \t")
	}
	return len(text) - len(rest), rest != "" && rest[0] != '}'
}

// own reports whether a setting belongs to the broker, where the guard stands, and is
// no secret in any of its blocks.
func (g *excerptGuard) own(name string) bool {
	if _, ok := pluginSchema().Field(name); ok {
		return true
	}
	if g.inProvider {
		return false
	}
	known := false
	for _, schema := range ownSchemas() {
		field, ok := schema.Field(name)
		if field.Secret {
			return false
		}
		known = known || ok
	}
	return known
}
