// Package takeover is for a broker that starts after one that was killed. A broker that
// is killed while it starts a plugin leaves what it had, its address and the lock of its
// state directory, to the child until that has become the plugin.
package takeover

import (
	"context"
	"errors"
	"time"
)

// Wait is how long a broker waits for what another one seems to have.
const Wait = 2 * time.Second

// pause lies between two tries.
const pause = 20 * time.Millisecond

// Of tries until the error is another one than busy. When Wait is over, or ctx ends, the
// error is that of the last try.
func Of[T any](ctx context.Context, busy error, try func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	for {
		got, err := try()
		if !errors.Is(err, busy) {
			return got, err
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return got, err
		}
	}
}
