// Package redact blanks secrets in text that goes to people: logs, errors, reasons.
// The broker does so with whatever a plugin says; a plugin needs it where it keeps
// text of its service, which may have been echoed by it.
package redact

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// Shortest is the length in bytes from which on a word counts as a secret;
	// shorter ones would blank half of every text.
	Shortest = 6
	// Blank is what stands for a secret.
	Blank = "(secret)"
)

// Redactor knows secrets. It never changes, and can be used by any number of
// goroutines. A nil *Redactor knows none.
type Redactor struct {
	replacer *strings.Replacer
	words    []string
}

// New returns a Redactor of these secrets, in all forms in which they are found in
// texts: as they are, each of their lines, as base64 (alone, and within something
// longer such as the header of Basic authentication), in hexadecimal, as parts of
// URLs, and escaped as in JSON or Go. Secrets below Shortest are left alone.
func New(secrets ...string) *Redactor {
	var words []string
	for _, secret := range secrets {
		if len(strings.TrimSpace(secret)) >= Shortest {
			words = append(words, forms(secret)...)
		}
	}
	words = slices.DeleteFunc(words, func(w string) bool { return len(w) < Shortest })
	// The replacer takes the first that fits: longest first.
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	words = slices.Compact(words)
	var pairs []string
	for _, word := range words {
		pairs = append(pairs, word, Blank)
	}
	return &Redactor{strings.NewReplacer(pairs...), words}
}

// Secrets returns the values of the secret settings. Numbers are returned in the ways in
// which they are written, from Shortest digits on.
func Secrets(schema sdk.Schema, settings sdk.Settings) []string {
	var secrets []string
	for _, field := range schema {
		if field.Type == sdk.TypeBlock {
			for _, block := range slices.Concat(settings.Blocks(field.Name), []sdk.Settings{settings.Block(field.Name)}) {
				secrets = append(secrets, Secrets(field.Fields, block)...)
			}
			continue
		}
		if !field.Secret {
			continue
		}
		switch v := settings[field.Name].(type) {
		case string:
			secrets = append(secrets, v)
		case []string:
			secrets = append(secrets, v...)
		case map[string]string:
			for _, s := range v {
				secrets = append(secrets, s)
			}
		case int64:
			secrets = append(secrets, number(float64(v))...)
		case float64:
			secrets = append(secrets, number(v)...)
		case []int64:
			for _, n := range v {
				secrets = append(secrets, number(float64(n))...)
			}
		case []float64:
			for _, n := range v {
				secrets = append(secrets, number(n)...)
			}
		}
	}
	return secrets
}

// Text returns text without the secrets.
func (r *Redactor) Text(text string) string {
	if r == nil {
		return text
	}
	return r.replacer.Replace(text)
}

// Error returns err with the same code and without the secrets in its text. What
// errors.Is says of err it says of the result. Nothing else of the chain but an
// *sdk.Error can be got at any more, for its text may have secrets in it. Nil gives
// nil.
func (r *Redactor) Error(err error) error {
	if err == nil || r == nil {
		return err
	}
	e, coded := errors.AsType[*sdk.Error](err)
	if !coded {
		return &redacted{text: r.Text(err.Error()), original: err}
	}
	clean := *e
	clean.Message, clean.Field = r.Text(e.Message), r.Text(e.Field)
	if err == error(e) { //nolint:errorlint // whether anything is around it
		return &clean
	}
	return &redacted{text: r.Text(err.Error()), original: err, coded: &clean}
}

// redacted is an error whose text is clean.
type redacted struct {
	text     string
	original error
	coded    *sdk.Error
}

func (r *redacted) Error() string        { return r.text }
func (r *redacted) Is(target error) bool { return errors.Is(r.original, target) }

func (r *redacted) Unwrap() error {
	if r.coded == nil {
		return nil
	}
	return r.coded
}
