// Package validtext keeps text that came out of a sandbox, or from a service, fit
// for messages of the provider protocol, whose strings are UTF-8. File names, MIME
// types and errors in there are whatever a program wrote.
//
// It also keeps text from steering the terminal on which it is shown.
//
// What a text means is not its matter; how output travels is not either: output is
// bytes.
package validtext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable replaces what would steer a terminal. Line ends and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Clip returns at most limit bytes of a text as UTF-8. What is none becomes U+FFFD,
// and no character is cut in two.
func Clip(text string, limit int) string {
	// U+FFFD is longer than what it stands for, so the text is cut after it was
	// mended. What is far behind the limit need not be mended.
	text = strings.ToValidUTF8(text[:min(len(text), limit+utf8.UTFMax)], "\uFFFD")
	if len(text) <= limit {
		return text
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
