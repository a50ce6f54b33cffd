package oncluster_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// sharedSecret is that of brokers which adopt from each other.
const sharedSecret = "a secret of all brokers of the test"

// Cases that wait run beside the others, in shares.
func TestConformance(t *testing.T) {
	c := cluster.Find(t)
	const beside = 4 // so many shares run beside each other
	shares := beside
	if testing.Short() {
		shares = 16 * beside
	}
	for share := range beside {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, provider.New, providertest.WithSettings(given(c, c.Namespace(t, privileged), map[string]any{"pool_size": 1, "secret": sharedSecret})),
				providertest.WithPatience(3), providertest.WithShare(share, shares), providertest.WithMemoryLimit(256<<20))
		})
	}
}

// What an instance can do does not depend on who made its pod, so that some of the cases, of
// most kinds, are enough here.
func testConformanceOfClaims(t *testing.T, c *cluster.Cluster) {
	const shares = 16
	for _, share := range []int{0, 3} {
		t.Run(fmt.Sprint("share ", share), func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, provider.New, providertest.WithSettings(claimed(c, c.Namespace(t, privileged), nil)),
				providertest.WithSkip(regexp.MustCompile("^adoption/"), "claims are not adopted"), providertest.WithPatience(3), providertest.WithShare(share, shares), providertest.WithMemoryLimit(256<<20))
		})
	}
}
