package listen

import (
	"net"
	"testing"

	"gotest.tools/v3/assert"
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
		listener, err := AtStart(t.Context(), address)
		started <- result{listener, err}
	}()
	assert.NilError(t, before.Close())
	r := <-started
	assert.NilError(t, r.err)
	assert.Equal(t, r.listener.Addr().String(), address)
	assert.NilError(t, r.listener.Close())
}
