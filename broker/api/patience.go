package api

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// transferStall is how long nothing may move between a client and a provider. A
// client that stalls is noticed sooner, by its connection; this is for providers.
const transferStall = 2 * time.Minute

// transferChunk is how much of a transfer is held at once.
const transferChunk = 128 << 10

var errStalled = errors.New("the transfer stalls")

// patience ends a transfer that has no deadline when nothing moves any more. An
// instance is not destroyed while it is used.
type patience struct {
	ctx   context.Context
	end   func()
	timer *time.Timer
}

// newPatience returns a context for the provider's call. The caller must call end.
func newPatience(ctx context.Context) (context.Context, *patience) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(transferStall, func() { cancel(errStalled) })
	p := &patience{ctx: ctx, timer: timer, end: func() {
		timer.Stop()
		cancel(nil)
	}}
	return ctx, p
}

// explain puts the end of patience into words.
func (p *patience) explain(err error) error {
	if err != nil && errors.Is(context.Cause(p.ctx), errStalled) {
		return sdk.Errorf(sdk.CodeUnavailable, "%w: nothing moved for %s", errStalled, transferStall)
	}
	return err
}

// reading returns a reader that counts as movement.
func (p *patience) reading(from io.Reader) io.Reader { return &movingReader{p, from} }

type movingReader struct {
	patience *patience
	from     io.Reader
}

func (m *movingReader) Read(b []byte) (int, error) {
	m.patience.timer.Reset(transferStall)
	n, err := m.from.Read(b)
	m.patience.timer.Reset(transferStall)
	return n, err
}

// send copies all of it, in large pieces.
func (p *patience) send(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{p.reading(from)}, make([]byte, transferChunk))
	return p.explain(err)
}
