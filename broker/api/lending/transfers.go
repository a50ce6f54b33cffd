package lending

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// transferStall is how long nothing may move between a client and a provider. A
// client that stalls is noticed sooner, by its connection; this is for providers.
const transferStall = 2 * time.Minute

// transferChunk is how much of a transfer is held at once.
const transferChunk = 128 << 10

// Upload passes content, mostly the body of a request, on to a provider: write reads
// it. A transfer has no deadline, but ends when nothing moves any more. Where content
// breaks off, that is the error, and not what the provider makes of it.
func Upload[T any](ctx context.Context, instances Instances, who tenant.Tenant, id string, capability sdk.Capability, content io.Reader,
	write func(ctx context.Context, provider T, instanceID string, content io.Reader) error,
) error {
	body := &uploaded{Reader: content}
	err := Use(ctx, instances, who, id, capability, func(ctx context.Context, provider T, instanceID string) error {
		ctx, p := newPatience(ctx)
		defer p.end()
		return p.explain(write(ctx, provider, instanceID, p.reading(body)))
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case body.err == nil:
		return err
	case errors.Is(body.err, os.ErrDeadlineExceeded):
		return rest.BadRequest(http.StatusRequestTimeout, "The body of the request stopped coming.")
	default:
		return rest.BadRequest(http.StatusBadRequest, "The body of the request broke off.")
	}
}

// uploaded remembers why a body ended early: nobody else is to blame then.
type uploaded struct {
	io.Reader
	err error
}

func (u *uploaded) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = err
	}
	return n, err
}

// Download has a provider open something and passes it on to use, which reads it. It has
// no deadline, but ends when nothing moves any more.
func Download[T any](ctx context.Context, instances Instances, who tenant.Tenant, id string, capability sdk.Capability,
	open func(ctx context.Context, provider T, instanceID string) (io.ReadCloser, error),
	use func(content io.Reader) error,
) error {
	return Use(ctx, instances, who, id, capability, func(ctx context.Context, provider T, instanceID string) error {
		ctx, p := newPatience(ctx)
		defer p.end()
		content, err := open(ctx, provider, instanceID)
		if err != nil {
			return p.explain(err)
		}
		defer content.Close()
		return p.explain(use(p.reading(content)))
	})
}

// Send copies all of it, in large pieces.
func Send(to io.Writer, from io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, transferChunk))
	return err
}

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
