package guestclient_test

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// toldGuest takes down which traces its executions are parts of.
type toldGuest struct {
	slowGuest
	told [][]string
}

func (g *toldGuest) Execute(req *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	g.told = append(g.told, metadata.ValueFromIncomingContext(stream.Context(), wire.MetadataTraceParent))
	return g.slowGuest.Execute(req, stream)
}

func TestTheGuestIsToldOfTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		g := &toldGuest{}
		client := connect(t, g)
		for _, told := range []string{parent, "", "forged\r\n" + parent} {
			_, err := client.Execute(sdk.WithTraceParent(t.Context(), told), sdk.ExecuteRequest{Language: sdk.Bash, Timeout: 1, OutputLimit: 1}, nil, discard{})
			assert.NilError(t, err)
		}
		assert.DeepEqual(t, g.told, [][]string{{parent}, nil, nil})
	})
}
