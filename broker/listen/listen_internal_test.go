package listen

import (
	"context"
	"net"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
)

// One that was killed may have left its listener to a child for a moment.
func TestABrokerThatStartsGetsAnAddressThatBecomesFree(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := before.Addr().String()
	type result struct {
		listener net.Listener
		err      error
	}
	started := make(chan result, 1)
	go func() {
		listener, err := (*Sockets)(nil).AtStart(t.Context(), address)
		started <- result{listener, err}
	}()
	assert.NilError(t, before.Close())
	r := <-started
	assert.NilError(t, r.err)
	assert.Equal(t, r.listener.Addr().String(), address)
	assert.NilError(t, r.listener.Close())
}

// greeter takes connections and keeps them.
type greeter struct{ taken chan net.Conn }

func (g greeter) Serve(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		g.taken <- conn
	}
}

func (g greeter) Shutdown(context.Context) error { return nil }

func TestWhatIsBesideAnEndpointCountsWithIt(t *testing.T) {
	gate := admission.NewGate(admission.Bounds{Connections: 10, Strangers: 10, StrangersPerAddress: 10}, func(admission.Event) {})
	taken := make(chan net.Conn, 2)
	first := New(greeter{taken}, gate, hclog.NewNullLogger())
	second := first.Beside(greeter{taken})
	var address string
	for _, e := range []*Endpoint{first, second} {
		listener, err := open("127.0.0.1:0")
		assert.NilError(t, err)
		e.MoveTo(listener)
		address = listener.Addr().String()
		conn, err := net.Dial("tcp", listener.Addr().String())
		assert.NilError(t, err)
		defer conn.Close()
	}
	for range 2 {
		conn := <-taken
		defer conn.Close()
	}
	assert.Equal(t, gate.Counts().Strangers, 2)
	second.MoveTo(nil)
	_, err := net.Dial("tcp", address)
	assert.Assert(t, err != nil)
	first.MoveTo(nil)
}
