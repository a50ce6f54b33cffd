package localfiles

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

func TestReplacingEndsWithItsContext(t *testing.T) {
	ctx := &patient{Context: t.Context(), times: 5}
	var out bytes.Buffer
	count, err := replaceAll(ctx, &out, strings.NewReader(strings.Repeat("a", 1000)), []byte("a"), []byte(strings.Repeat("b", 1000)))
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, count, int64(5))
}
