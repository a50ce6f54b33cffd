package main

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

// longest is how much of one text of a provider or its service is shown, in bytes.
const longest = 4000

// Secrets that nobody has told us of, for a service gives some itself: they are known by
// their form or by what stands before them.
var (
	// A URL is shown up to its query, which is where signatures and tokens are.
	query = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://[^\s"'<>?#\\]*)[?#][^\s"'<>]+`)
	login = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)[^\s"'<>/@]+@`)
	// A value behind a telling name: in headers, forms, JSON and Go.
	named  = regexp.MustCompile(`(?i)([a-z0-9_-]*(?:token|secret|signature|password|credential|authorization|cookie|api[_-]?key|access[_-]?key(?:[_-]?id)?)\\?["']?\s*[:=]\s*\\?["']?(?:(?:bearer|basic)\s+)?)[^\s"'\\,;&<>(]{6,}`)
	formed = regexp.MustCompile(`\b(?:LTAI[A-Za-z0-9]{8,}|STS\.[A-Za-z0-9]{8,}|e2b_[A-Za-z0-9]{16,}|sk_[A-Za-z0-9_]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+|CAIS[A-Za-z0-9+/=]{16,})|(?i:\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}`)
)

// cleaner makes texts fit to be shown and sent.
type cleaner struct{ known *redact.Redactor }

func (c cleaner) text(text string) string {
	text = c.known.Text(text)
	text = query.ReplaceAllString(text, "${1}?"+redact.Blank)
	text = login.ReplaceAllString(text, "${1}"+redact.Blank+"@")
	text = formed.ReplaceAllString(text, redact.Blank)
	text = named.ReplaceAllString(text, "${1}"+redact.Blank)
	// What comes from a service must not steer a terminal.
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, text)
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
