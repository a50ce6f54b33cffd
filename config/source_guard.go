package config

import (
	"regexp"
	"strings"
)

// excerptGuard decides line by line what may be shown.
type excerptGuard struct {
	// foreign is where in a block the guard stands that is a provider's, or that is no
	// block of the broker; nil outside of them.
	foreign *foreignBlock
	// open says that the current statement is one whose value may be shown;
	// its further lines then may be too.
	open bool
	// heredoc is the word that ends the text in which the guard stands.
	heredoc string
	// inSums says that the list of token_sha256 goes on.
	inSums bool
}

const referenceForm = `((env|file)\("[\w./-]*"\)|sealed\("sb1:[0-9a-f]{8}:[\w-]{38,}"\))`

// ownSecret begins the tokens and keys that the broker makes, and the URL of a database, which may
// have a password. The former stand in no configuration but by mistake.
var ownSecret = regexp.MustCompile(`sbk(ey)?_|postgres(ql)?://`)

var (
	assignment   = regexp.MustCompile(`([\pL_][\pL\pN_-]*)\s*=[^=]`)
	ownBlock     = regexp.MustCompile(`^(provider|providers|tenant|admin|audit|connections|front_door|log|metrics|peers|previews|quota|tls|limits|network|allow|secret)\b(\s+"[^"]*")*\s*(\{|$)`)
	otherBlock   = regexp.MustCompile(`^[\pL_][\pL\pN_-]*\s*\{`)
	firstWord    = regexp.MustCompile(`^[\pL_][\pL\pN_-]*`)
	heredocStart = regexp.MustCompile(`<<-?\s*([\pL_][\pL\pN_-]*)\s*$`)
	// reference is a value that tells where a secret is and not the secret.
	reference     = regexp.MustCompile(`^` + referenceForm + `$`)
	sumOrComma    = regexp.MustCompile(`^("[0-9A-Fa-f]{64}"|` + referenceForm + `|,)`)
	statementName = regexp.MustCompile(`^([\pL_][\pL\pN_-]*)\s*=\s*[^=\s]`)
	// providerSetting is that of a front door. Whatever else stands behind the word is the
	// header of a provider's block with a slip in it.
	providerSetting = regexp.MustCompile(`^provider\s*=\s*("[\w-]*"|null|` + referenceForm + `)\s*($|#|//|/\*|\})`)
)

// hideFrom returns the offset in line where the hidden part begins.
func (g *excerptGuard) hideFrom(line string) int {
	inHeredoc := g.heredoc != ""
	hide := g.readLine(line)
	if g.foreign != nil && !inHeredoc && g.foreign.endsWith(line) {
		g.foreign = nil
	}
	return hide
}

func (g *excerptGuard) readLine(line string) int {
	if g.heredoc != "" {
		if strings.TrimSpace(line) == g.heredoc {
			g.heredoc = ""
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
			at++
			continue
		}
		if rest[0] == '#' || strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") {
			return at
		}
		if m := statementName.FindStringSubmatch(rest); m != nil {
			if m[1] == "provider" && g.foreign == nil && !providerSetting.MatchString(rest) {
				g.enter(line)
				g.open = false
				return at + len(m[0]) - 1
			}
			g.open = true
			hide := at + g.firstForeign(rest)
			g.open = hide == len(line)
			return hide
		}
		if m := ownBlock.FindStringSubmatch(rest); m != nil && g.foreign == nil {
			if m[1] == "provider" {
				g.enter(line)
			}
			g.open = true
			at += len(m[0])
			continue
		}
		if m := otherBlock.FindString(rest); m != "" {
			inner := g.foreign != nil
			g.enter(line)
			g.open = false
			at += len(m)
			if inner && strings.Trim(line[at:], " \t}") != "" {
				return at
			}
			continue
		}
		word := firstWord.FindString(rest)
		switch {
		case !g.open:
			return at
		case word == "" || word != "provider" && g.own(word):
			return at + g.firstForeign(rest)
		default: // such as a name whose equals sign was forgotten, or a header with a slip in it
			g.enter(line)
			g.open = false
			return at + len(word)
		}
	}
}

// enter begins a block whose settings are not the broker's, unless the guard is in one:
// then it is a block within it, whatever its name.
func (g *excerptGuard) enter(line string) {
	if g.foreign == nil {
		g.foreign = &foreignBlock{indentation: indentationOf(line)}
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
	if g.foreign != nil {
		_, ok := pluginSchema().Field(name)
		return ok && g.foreign.atTop()
	}
	if _, ok := pluginSchema().Field(name); ok {
		return true
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
