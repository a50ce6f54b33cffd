package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/tail"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sandbox is a running sandbox with the connection to its guest.
type sandbox struct {
	running
	ID    string
	guest *guestclient.Client
	past  past
}

// makeOne starts a sandbox, as a copy of the image unless that is nil, and returns when
// its interpreter is ready.
func (p *Provider) makeOne(ctx context.Context, template string, image *madeImage) (*sandbox, error) {
	id := newID()
	raw, err := p.start(ctx, id, image)
	if err != nil {
		return nil, err
	}
	s := &sandbox{running: raw, ID: id}
	if s.guest, err = guestclient.New(raw.Conn()); err == nil {
		err = s.prepare(ctx, p.preparation(template))
	}
	if err != nil {
		// Also the end of what it says: it has ended, or is ended here.
		destroyed := s.Destroy(context.WithoutCancel(ctx))
		return nil, errors.Join(p.explainStart(err, raw.Stderr()), destroyed)
	}
	return s, nil
}

// explainStart says why a sandbox did not come up, as well as it can be known from
// what was said on its standard error.
func (p *Provider) explainStart(err error, stderr string) error {
	if words := tail.LastWords(stderr); words != "" {
		err = fmt.Errorf("%w; the sandbox said: %s", err, words)
	}
	if known := p.runtime.Explain(stderr); known != "" {
		err = fmt.Errorf("%w (%w)", sdk.Errorf(sdk.CodeCreateFailed, "%s", known), err)
	}
	return err
}

func (s *sandbox) prepare(ctx context.Context, preparation *guestv1.PrepareRequest) error {
	// A sandbox that ends at once shall not be waited for.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	_, err := s.guest.Prepare(ctx, preparation)
	return err
}

// memoryLimit is what the programs in a sandbox may use together, in bytes, as
// far as its guest can see that.
func (p *Provider) memoryLimit() int64 {
	if !p.runtime.GVisor() {
		return math.MaxInt64 // what the guest sees in use there is the host's
	}
	return p.settings.MemoryMB << 20
}

// Destroy ends the sandbox.
func (s *sandbox) Destroy(ctx context.Context) error {
	if s.guest != nil {
		_ = s.guest.Close()
	}
	return s.running.Destroy(ctx)
}

// idAlphabet and idLength make instance IDs: all of one length, so that none is a
// prefix of another, and about 103 bits, so that none is guessed.
const (
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	idLength   = 20
)

func newID() string {
	id := make([]byte, 0, idLength)
	var b [1]byte
	for len(id) < idLength {
		_, _ = rand.Read(b[:])                     // never fails since Go 1.24
		if n := int(b[0]); n < 7*len(idAlphabet) { // no modulo bias
			id = append(id, idAlphabet[n%len(idAlphabet)])
		}
	}
	return string(id)
}
