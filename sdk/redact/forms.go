package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// shortestLine is what a line of a longer secret must have to count by itself.
	shortestLine = 16
	// shortestCore is what must be left of base64 whose ends depend on what stands
	// beside the secret.
	shortestCore = 8
)

// forms are the texts in which a secret can be found.
func forms(secret string) []string {
	trimmed := strings.TrimSpace(secret)
	all := []string{secret, trimmed}
	if strings.Contains(trimmed, "\n") {
		for line := range strings.Lines(trimmed) {
			if line = strings.TrimSpace(line); len(line) >= shortestLine {
				all = append(all, line)
			}
		}
	}
	for _, s := range []string{secret, trimmed} {
		all = append(all, url.QueryEscape(s), url.PathEscape(s), strings.ToLower(url.QueryEscape(s)))
		all = append(all, unquoted(strconv.Quote(s)), unquoted(strconv.QuoteToASCII(s)))
		all = append(all, hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s))))
		all = append(all, asJSON(s)...)
		all = append(all, asBase64(s)...)
	}
	// What is escaped already is often put into JSON, as by a logger.
	for _, s := range slices.Clone(all) {
		all = append(all, asJSON(s)...)
	}
	return all
}

// number is a secret number as it is written: in full, and with an exponent, as Go and
// JSON write numbers that came over the wire. One of few digits is written everywhere and
// has none: zeros in front do not count. Whole settings are exact in a float64.
func number(n float64) []string {
	full := strconv.FormatFloat(n, 'f', -1, 64)
	digits := strings.Count(strings.TrimLeft(strings.ReplaceAll(full, ".", ""), "-0"), "") - 1
	if digits < Shortest {
		return nil
	}
	all := []string{full, strconv.FormatFloat(n, 'g', -1, 64), strconv.FormatFloat(n, 'e', -1, 64)}
	if asText, err := json.Marshal(n); err == nil {
		all = append(all, string(asText))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func unquoted(s string) string { return s[1 : len(s)-1] }

// asJSON is the inside of a JSON string, as encoders write it that care for HTML and
// as those write it that do not.
func asJSON(s string) []string {
	text, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	var plain strings.Builder
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(s) != nil {
		return nil
	}
	return []string{unquoted(string(text)), unquoted(strings.TrimSpace(plain.String()))}
}

// asBase64 is the secret encoded alone and, for each of the three ways in which it
// can lie in something longer, the characters that depend on it alone.
func asBase64(s string) []string {
	var all []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		all = append(all, encoding.EncodeToString([]byte(s)))
		for before := range 3 {
			encoded := encoding.EncodeToString([]byte(strings.Repeat("\x00", before) + s))
			first := (before*8 + 5) / 6
			last := (before + len(s)) * 8 / 6
			if last-first >= shortestCore {
				all = append(all, encoded[first:last])
			}
		}
	}
	return all
}
