package redact

import (
	"regexp"
	"strings"
	"unicode"
)

const (
	// longestOrdinary bounds an ordinary value, and longestWord a word in it, in bytes.
	longestOrdinary = 80
	longestWord     = 16
	// longestNumber is how many digits a number, or the end of a word, may have.
	longestNumber = 4
)

// telling are parts of names whose values are secrets, whatever they look like.
var telling = regexp.MustCompile(`(?i)(key|token|secret|pass|pwd|pw$|credential|auth|cert|private|seed|salt|signature|cookie|session|dsn|pin$)`)

// Ordinary reports whether a value that comes from a variable of that name is a word, a
// switch, a region, an address or another plain text that everybody may read: to blank
// such a text everywhere would hide what has nothing to do with it. It is careful: a
// name that speaks of secrets, letters mixed with digits, long words and user names in
// addresses are not ordinary.
func Ordinary(name, value string) bool {
	if telling.MatchString(name) || len(value) > longestOrdinary || strings.ContainsAny(value, "@?&=%\n") {
		return false
	}
	words := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune("-._:/, ", r) })
	for _, word := range words {
		letters := strings.TrimRightFunc(word, unicode.IsDigit)
		if len(letters) > longestWord || len(word)-len(letters) > longestNumber || strings.ContainsFunc(letters, func(r rune) bool { return !unicode.IsLetter(r) }) {
			return false
		}
	}
	return len(words) <= longestWord
}
