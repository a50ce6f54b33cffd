package filetext

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// patient is a context that ends when it was asked some times.
type patient struct {
	context.Context
	asked, times int
}

func (p *patient) Err() error {
	if p.asked++; p.asked > p.times {
		return context.Canceled
	}
	return nil
}

func TestAPatternIsGivenUpAmidALine(t *testing.T) {
	pattern, err := compileBounded("(?i)" + strings.Repeat("[a-z]{1000}", 9) + `\d`)
	assert.NilError(t, err)
	line := bytes.Repeat([]byte("x"), LineBytes)
	ctx := &patient{Context: t.Context(), times: 3}
	_, err = pattern.find(ctx, line)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Assert(t, ctx.asked < 10, "it went on after it was told: %d", ctx.asked)
}

func TestALongLineIsSearchedAsAShortOne(t *testing.T) {
	for text, want := range map[string]int{
		"needle": 60_000, "(?i)NEEDLE": 60_000, "x{1000}n": 59_000, `^x{1000}`: 0, "^needle": -1, "needle$": -1, "é$": 60_011, "[^x]": 60_000, "absent{500}": -1,
	} {
		pattern, err := compileBounded(text)
		assert.NilError(t, err)
		line := []byte(strings.Repeat("x", 60_000) + "needle and é")
		at, err := pattern.find(t.Context(), line)
		assert.NilError(t, err)
		assert.Equal(t, at, want, text)
	}
}

func TestPatternsAreBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat(`[a-z]{1000}`, 70), `((a{100}){100}){100}`, `(`, `(?<`, strings.Repeat("(", 1000)} {
		_, err := compileBounded(text)
		assert.Assert(t, err != nil, "%.20q", text)
	}
}
