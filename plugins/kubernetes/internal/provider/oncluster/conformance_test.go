package oncluster_test

import (
	"fmt"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// Cases that wait run beside the others, in shares.
func TestConformance(t *testing.T) {
	c := cluster.Find(t)
	const shares = 4
	for share := range shares {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, provider.New, providertest.WithSettings(given(c, c.Namespace(t, privileged), map[string]any{"pool_size": 1})),
				providertest.WithPatience(6), providertest.WithShare(share, shares), providertest.WithMemoryLimit(256<<20))
		})
	}
}
