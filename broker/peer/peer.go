package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Peer is another broker on the same database.
type Peer struct {
	// ID of the broker, for logs.
	ID string
	// Address is where it listens for its peers: a host, which its certificate names, and a
	// port.
	Address string
}

// retryAfter is when a call may be tried again that could not be passed on. By then the
// database knows whether its owner still lives.
const retryAfter = time.Second

// ElsewhereError says that another broker has what a call is about: the call is passed on to
// that. For who cannot pass it on it is an SB009.
type ElsewhereError struct {
	Peer Peer
	// Placed says that the peer does not have it yet, and that it is to be made there.
	Placed bool
}

// Elsewhere is the error of a call that is a peer's.
func Elsewhere(p Peer) error { return &ElsewhereError{Peer: p} }

// Placed is the error of a call that makes something which a peer is to have.
func Placed(p Peer) error { return &ElsewhereError{Peer: p, Placed: true} }

// WasPlaced reports whether an error is that of Placed.
func WasPlaced(err error) bool {
	e, ok := errors.AsType[*ElsewhereError](err)
	return ok && e.Placed
}

// placing is where a context says that what its call makes may be placed.
type placing struct{}

// WithPlacing says of the call that a context is for whether what it makes may be with a peer.
func WithPlacing(ctx context.Context, may bool) context.Context {
	return context.WithValue(ctx, placing{}, may)
}

// MayPlace reports whether that was said of the call.
func MayPlace(ctx context.Context) bool {
	may, _ := ctx.Value(placing{}).(bool)
	return may
}

// Of is the peer that a call is to be passed on to by an error; false for any other error.
func Of(err error) (Peer, bool) {
	e, ok := errors.AsType[*ElsewhereError](err)
	if !ok {
		return Peer{}, false
	}
	return e.Peer, true
}

// Has reports whether an error says that another broker has what a call is about.
func Has(err error) bool {
	_, ok := Of(err)
	return ok
}

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("broker %q has it", e.Peer.ID)
}

// Unwrap is what the client is told. It names no broker: how many there are, and where, is
// not the client's business.
func (e *ElsewhereError) Unwrap() error {
	return unavailable("Another broker has it, and the call cannot be passed on to that at this moment.")
}

func unavailable(message string) error {
	e := sdk.Errorf(sdk.CodeUnavailable, "%s", message)
	e.RetryAfter = retryAfter
	return e
}
