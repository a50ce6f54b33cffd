package config_test

import (
	"fmt"
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestConnections(t *testing.T) {
	cfg, diags := config.Parse("x.hcl", []byte("connections {\n  total = 50\n  shared_addresses = [\"10.1.2.3/8\", \"::1\", \"::ffff:10.1.2.3\"]\n}\n"+smallest))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	c := cfg.Connections
	assert.Equal(t, fmt.Sprint(c.SharedAddresses), fmt.Sprint([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.1.2.3/32"),
	}))
	assert.Equal(t, c.Total, int64(50))
	cfg, _ = config.Parse("x.hcl", []byte(smallest))
	assert.Equal(t, cfg.Connections.WithoutToken, int64(1000))
}
