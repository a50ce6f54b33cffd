package guest

import (
	"context"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// These tests are inside the package: an attendance is no part of what the guest serves.

// wait is an attendance that is waited for in the background.
type wait struct {
	over      chan struct{}
	abandoned bool // when it is over
}

func waits(t *testing.T, a *attendance) *wait {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &wait{over: make(chan struct{})}
	go func() {
		defer close(w.over)
		w.abandoned = a.abandoned(ctx, soon)
	}()
	t.Cleanup(func() {
		cancel()
		<-w.over
	})
	return w
}

// soon is short, and long is longer than any test.
const (
	soon = 50 * time.Millisecond
	long = time.Hour
)

func (w *wait) ends(t *testing.T) {
	t.Helper()
	select {
	case <-w.over:
		assert.Assert(t, w.abandoned)
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

func TestAGuestThatNobodyConnectsToEnds(t *testing.T) {
	t.Run("at once", func(t *testing.T) { waits(t, &attendance{}).ends(t) })
	t.Run("when its time is over", func(t *testing.T) {
		var a attendance
		began := time.Now()
		a.keepUntil(began.Add(4 * soon))
		waits(t, &a).ends(t)
		assert.Assert(t, time.Since(began) >= 4*soon)
	})
	t.Run("when the last of its time is taken back", func(t *testing.T) {
		var a attendance
		a.keepForever()
		waiting := waits(t, &a)
		assert.Assert(t, !isOver(&a, soon))
		a.keepUntil(time.Now().Add(long))
		assert.Assert(t, !isOver(&a, soon))
		a.keepUntil(time.Now())
		waiting.ends(t)
	})
}

// isOver says whether nothing keeps an attendance.
func isOver(a *attendance, after time.Duration) bool {
	left, _ := a.remaining(after)
	return left <= 0
}

func TestAGuestWithAConnectionGoesOn(t *testing.T) {
	var listening net.ListenConfig
	inner, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	var a attendance
	listener := a.counting(inner)
	defer listener.Close()
	var dialer net.Dialer
	var conns []net.Conn
	for range 2 {
		client, err := dialer.DialContext(t.Context(), "tcp", inner.Addr().String())
		assert.NilError(t, err)
		defer client.Close()
		conn, err := listener.Accept()
		assert.NilError(t, err)
		conns = append(conns, conn)
	}
	waiting := waits(t, &a)
	assert.NilError(t, conns[0].Close())
	assert.Assert(t, conns[0].Close() != nil, "a connection goes once, however often it is closed")
	assert.Assert(t, !isOver(&a, 0), "one is there")
	assert.NilError(t, conns[1].Close())
	waiting.ends(t)
}

func TestAGuestThatIsNotToEndDoesNot(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Assert(t, !(&attendance{}).abandoned(ctx, 0))
	assert.Assert(t, !(&attendance{}).abandoned(ctx, long))
	for text, after := range map[string]time.Duration{"": 0, "0s": 0, "24h0m0s": 24 * time.Hour} {
		got, err := abandonedAfter(text)
		assert.NilError(t, err)
		assert.Equal(t, got, after)
	}
	for _, text := range []string{"-1s", "soon", "24"} {
		_, err := abandonedAfter(text)
		assert.Assert(t, err != nil, text)
	}
}
