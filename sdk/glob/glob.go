// Package glob matches paths against the globs of sdk.ListFilesRequest: *, ?, [a-z],
// {a,b}, and ** for any number of directories.
//
// A pattern may come from anybody. It is compiled to an automaton, so that a match
// takes time in proportion to the two lengths, whatever braces and stars are nested
// in it. What lists files stands in package localfiles.
package glob

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// MaxPattern is how many bytes a pattern may have.
const MaxPattern = 1000

// maxNesting is how many braces may be in one another.
const maxNesting = 8

// Glob is a compiled pattern. A nil Glob matches everything.
type Glob struct{ re *regexp.Regexp }

// Compile reads a pattern. The empty one gives a nil Glob. The error says what is
// wrong with the pattern, in words that fit behind the name of a field.
func Compile(pattern string) (*Glob, error) {
	if pattern == "" {
		return nil, nil
	}
	if !utf8.ValidString(pattern) {
		return nil, fmt.Errorf("must be UTF-8")
	}
	if len(pattern) > MaxPattern {
		return nil, fmt.Errorf("must have at most %d bytes", MaxPattern)
	}
	c := compiler{rest: pattern, atStart: true}
	if err := c.sequence(0); err != nil {
		return nil, err
	}
	re, err := regexp.Compile(`(?s)\A(?:` + c.out.String() + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("is not a pattern")
	}
	return &Glob{re}, nil
}

// Match reports whether a path, relative and with slashes, matches as a whole.
func (g *Glob) Match(name string) bool { return g == nil || g.re.MatchString(name) }

// compiler writes a regular expression for a pattern.
type compiler struct {
	rest    string
	atStart bool // what comes next begins a name of the path
	out     strings.Builder
}

// sequence reads up to the end, or to what ends an alternative within braces.
func (c *compiler) sequence(nesting int) error {
	for c.rest != "" {
		char, size := utf8.DecodeRuneInString(c.rest)
		switch {
		case nesting > 0 && (char == ',' || char == '}'):
			return nil
		case char == '*':
			c.stars(nesting)
			continue
		}
		started := c.atStart
		text := c.rest[:size]
		c.rest, c.atStart = c.rest[size:], char == '/'
		switch char {
		case '?':
			c.out.WriteString(`[^/]`)
		case '[':
			if err := c.class(); err != nil {
				return err
			}
		case '{':
			c.atStart = started
			if err := c.braces(nesting + 1); err != nil {
				return err
			}
		case '\\':
			if c.rest == "" {
				return fmt.Errorf("is not a pattern: it ends with a backslash")
			}
			_, size := utf8.DecodeRuneInString(c.rest)
			c.out.WriteString(regexp.QuoteMeta(c.rest[:size]))
			c.rest = c.rest[size:]
		case '/':
			if c.rest == "**" { // the directory itself, and what is in it
				c.out.WriteString(`(?:/.*)?`)
				c.rest = ""
				continue
			}
			c.out.WriteString("/")
		default:
			c.out.WriteString(regexp.QuoteMeta(text))
		}
	}
	return nil
}

// stars reads *, or ** where it stands for directories.
func (c *compiler) stars(nesting int) {
	after := strings.TrimLeft(c.rest, "*")
	many := len(c.rest)-len(after) >= 2
	ends := after == "" || nesting > 0 && (after[0] == ',' || after[0] == '}')
	switch {
	case many && c.atStart && strings.HasPrefix(after, "/"):
		c.out.WriteString(`(?:.*/)?`)
		c.rest = after[1:]
		return
	case many && c.atStart && ends:
		c.out.WriteString(`.*`)
	default:
		c.out.WriteString(`[^/]*`)
	}
	c.rest, c.atStart = after, false
}

// braces reads the alternatives of {a,b}.
func (c *compiler) braces(nesting int) error {
	if nesting > maxNesting {
		return fmt.Errorf("must have at most %d braces in one another", maxNesting)
	}
	started := c.atStart
	c.out.WriteString("(?:")
	for {
		c.atStart = started
		if err := c.sequence(nesting); err != nil {
			return err
		}
		if c.rest == "" {
			return fmt.Errorf("is not a pattern: a brace is not closed")
		}
		end := c.rest[0] == '}'
		c.rest = c.rest[1:]
		if end {
			c.out.WriteString(")")
			c.atStart = false
			return nil
		}
		c.out.WriteString("|")
	}
}

// class reads [a-z] behind its bracket. It never matches a slash.
func (c *compiler) class() error {
	unclosed := fmt.Errorf("is not a pattern: a bracket is not closed")
	negated := strings.HasPrefix(c.rest, "!") || strings.HasPrefix(c.rest, "^")
	if negated {
		c.rest = c.rest[1:]
	}
	var ranges strings.Builder
	for first := true; ; first = false {
		if c.rest == "" {
			return unclosed
		}
		if c.rest[0] == ']' && !first {
			c.rest = c.rest[1:]
			break
		}
		low, err := c.member()
		if err != nil {
			return err
		}
		high := low
		if len(c.rest) > 1 && c.rest[0] == '-' && c.rest[1] != ']' {
			c.rest = c.rest[1:]
			if high, err = c.member(); err != nil {
				return err
			}
		}
		if high < low {
			return fmt.Errorf("is not a pattern: a range goes backwards")
		}
		writeRange(&ranges, low, high, negated)
	}
	switch {
	case negated:
		fmt.Fprintf(&c.out, `[^/%s]`, ranges.String())
	case ranges.Len() == 0:
		c.out.WriteString(`[^\x{0}-\x{10FFFF}]`) // nothing
	default:
		fmt.Fprintf(&c.out, `[%s]`, ranges.String())
	}
	return nil
}

// member reads a letter of a class.
func (c *compiler) member() (rune, error) {
	text := strings.TrimPrefix(c.rest, `\`)
	if text == "" {
		return 0, fmt.Errorf("is not a pattern: a bracket is not closed")
	}
	char, size := utf8.DecodeRuneInString(text)
	c.rest = text[size:]
	return char, nil
}

// writeRange writes a range for a class, without the slash unless it is negated.
func writeRange(to *strings.Builder, low, high rune, negated bool) {
	if negated || high < '/' || low > '/' {
		fmt.Fprintf(to, `\x{%X}-\x{%X}`, low, high)
		return
	}
	if low < '/' {
		fmt.Fprintf(to, `\x{%X}-\x{%X}`, low, '/'-1)
	}
	if high > '/' {
		fmt.Fprintf(to, `\x{%X}-\x{%X}`, '/'+1, high)
	}
}
