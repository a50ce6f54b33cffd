package guest

import (
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// This test is inside the package: only in a pod has a guest such an environment.
func TestWhetherTheAPIServerIsReachedIsTold(t *testing.T) {
	req := &guestv1.ReachAPIServerRequest{Timeout: durationpb.New(10 * time.Second)}
	t.Setenv(apiServerHost, "")
	_, err := (&guest{}).ReachAPIServer(t.Context(), req)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	host, port, err := net.SplitHostPort(listener.Addr().String())
	assert.NilError(t, err)
	t.Setenv(apiServerHost, host)
	t.Setenv(apiServerPort, port)
	told, err := (&guest{}).ReachAPIServer(t.Context(), req)
	assert.NilError(t, err)
	assert.Assert(t, told.GetReached())
	assert.Equal(t, told.GetAddress(), listener.Addr().String())

	assert.NilError(t, listener.Close())
	told, err = (&guest{}).ReachAPIServer(t.Context(), req)
	assert.NilError(t, err)
	assert.Assert(t, !told.GetReached())
}
