package webhook

import (
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"
)

func TestAddressesToWhichNothingIsPosted(t *testing.T) {
	for address, want := range map[string]struct{ public, private bool }{
		"8.8.8.8":                {true, true},
		"2606:4700::1111":        {true, true},
		"127.0.0.1":              {false, true},
		"::1":                    {false, true},
		"10.1.2.3":               {false, true},
		"192.168.1.1":            {false, true},
		"fd00::1":                {false, true},
		"::ffff:10.1.2.3":        {false, true},
		"100.64.0.1":             {false, true},
		"169.254.169.254":        {false, false},
		"::ffff:169.254.169.254": {false, false},
		"fe80::1%eth0":           {false, false},
		"fd00:ec2::254":          {false, false},
		"100.100.100.200":        {false, false},
		"168.63.129.16":          {false, false},
		"0.0.0.0":                {false, false},
		"::":                     {false, false},
		"224.0.0.1":              {false, false},
		"255.255.255.255":        {false, false},
		"64:ff9b::7f00:1":        {false, true},
		"2002:7f00:1::":          {false, true},
	} {
		a := netip.MustParseAddr(address)
		assert.Check(t, mayConnect(a, false) == want.public, "%s, public", address)
		assert.Check(t, mayConnect(a, true) == want.private, "%s, private", address)
	}
}
