package redact

import "strings"

// shortestPiece is how many characters at the edge of a text, the same as those at
// the edge of a secret, count as a piece of it. Fewer are there by chance.
const shortestPiece = 4

// Part returns text without the secrets, where text is a part of something longer:
// its first and last characters may be a piece of a secret. Those that could be are
// blanked too.
func (r *Redactor) Part(text string) string {
	if r == nil {
		return text
	}
	text = r.Text(text)
	before, after := 0, 0
	for _, word := range r.words {
		before = max(before, endOf(word, text))
		after = max(after, beginningOf(word, text))
	}
	if before > 0 {
		text = Blank + text[before:]
		after = min(after, len(text)-len(Blank))
	}
	if after > 0 {
		text = text[:len(text)-after] + Blank
	}
	return text
}

// endOf is how many characters of a word's end the text begins with.
func endOf(word, text string) int {
	for n := min(len(word)-1, len(text)); n >= shortestPiece; n-- {
		if strings.HasPrefix(text, word[len(word)-n:]) {
			return n
		}
	}
	return 0
}

// beginningOf is how many characters of a word's beginning the text ends with.
func beginningOf(word, text string) int {
	for n := min(len(word)-1, len(text)); n >= shortestPiece; n-- {
		if strings.HasSuffix(text, word[:n]) {
			return n
		}
	}
	return 0
}
