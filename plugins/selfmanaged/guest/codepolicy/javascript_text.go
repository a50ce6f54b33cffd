package codepolicy

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tdewolff/parse/v2/js"
)

// constantOf returns the string that an expression surely is.
func constantOf(e js.IExpr) (string, bool) {
	var text strings.Builder
	// Sums nest to the left, and may be long.
	var right []js.IExpr
	for {
		switch x := e.(type) {
		case *js.GroupExpr:
			e = x.X
			continue
		case *js.BinaryExpr:
			if x.Op != js.AddToken {
				return "", false
			}
			right = append(right, x.Y)
			e = x.X
			continue
		}
		break
	}
	if !appendConstant(&text, e) {
		return "", false
	}
	for i := len(right) - 1; i >= 0; i-- {
		switch right[i].(type) {
		case *js.BinaryExpr, *js.GroupExpr:
			s, ok := constantOf(right[i])
			if !ok {
				return "", false
			}
			text.WriteString(s)
		default:
			if !appendConstant(&text, right[i]) {
				return "", false
			}
		}
	}
	return text.String(), true
}

func appendConstant(text *strings.Builder, e js.IExpr) bool {
	switch x := e.(type) {
	case *js.LiteralExpr:
		if x.TokenType != js.StringToken || len(x.Data) < 2 {
			return false
		}
		text.WriteString(unescape(string(x.Data[1 : len(x.Data)-1])))
		return true
	case *js.TemplateExpr:
		if x.Tag != nil {
			return false
		}
		for _, part := range x.List {
			value, ok := constantOf(part.Expr)
			if !ok {
				return false
			}
			text.WriteString(templateText(part.Value))
			text.WriteString(value)
		}
		text.WriteString(templateText(x.Tail))
		return true
	default:
		return false
	}
}

// templateText is the text of a part of a template without its delimiters.
func templateText(part []byte) string {
	s := string(part)
	s = strings.TrimLeft(s[:min(1, len(s))], "`}") + s[min(1, len(s)):]
	if rest, ok := strings.CutSuffix(s, "${"); ok {
		return unescape(rest)
	}
	return unescape(strings.TrimSuffix(s, "`"))
}

// unescape resolves the escapes of strings and identifiers.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		if s[0] != '\\' || len(s) == 1 {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		var r rune
		r, s = escape(s[1:])
		if utf16.IsSurrogate(r) && strings.HasPrefix(s, `\`) {
			if low, rest := escape(s[1:]); utf16.DecodeRune(r, low) != utf8.RuneError {
				r, s = utf16.DecodeRune(r, low), rest
			}
		}
		if r >= 0 {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escape reads what follows a backslash; -1 stands for nothing.
func escape(s string) (rune, string) {
	r, size := utf8.DecodeRuneInString(s)
	rest := s[size:]
	switch r {
	case 'b':
		return '\b', rest
	case 'f':
		return '\f', rest
	case 'n':
		return '\n', rest
	case 'r':
		return '\r', rest
	case 't':
		return '\t', rest
	case 'v':
		return '\v', rest
	case '\r':
		return -1, strings.TrimPrefix(rest, "\n")
	case '\n', '\u2028', '\u2029':
		return -1, rest
	case 'x':
		return number(r, rest, rest[:min(2, len(rest))], 16, 0)
	case 'u':
		if inner, ok := strings.CutPrefix(rest, "{"); ok {
			digits, _, _ := strings.Cut(inner, "}")
			return number(r, rest, digits, 16, 2)
		}
		return number(r, rest, rest[:min(4, len(rest))], 16, 0)
	case '0', '1', '2', '3', '4', '5', '6', '7':
		n := 1
		for n < len(s) && n < 3 && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		if n == 3 && s[0] > '3' {
			n = 2
		}
		return number(r, rest, s[:n], 8, -1)
	default:
		return r, rest
	}
}

// number reads the digits of an escape, which are followed or surrounded by
// further bytes; a broken one stands for its letter.
func number(letter rune, rest, digits string, base, further int) (rune, string) {
	n, err := strconv.ParseUint(digits, base, 21)
	if err != nil || n > utf8.MaxRune {
		return letter, rest
	}
	return rune(n), rest[len(digits)+further:]
}
