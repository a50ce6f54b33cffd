package network_test

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestACreationNarrowsItsTenantsNetwork(t *testing.T) {
	has := &sdk.NetworkPolicy{
		MaxConnections: 10, MaxBytes: 1000, TenantBytes: 5000,
		Rules: []sdk.NetworkRule{
			{Host: "*.example.com", Methods: []string{"GET", "HEAD"}},
			{Host: "api.example.org", Paths: []string{"/v1/*"}, Ports: []int{443}},
			{Host: "db.example.org", Ports: []int{5432}, TCP: true, Private: true},
		},
		Secrets: []sdk.NetworkSecret{{Name: "key", Header: "Authorization", Value: "hunter2hunter2", Hosts: []string{"api.example.org"}}},
	}
	one := func(r sdk.NetworkRule) *network.Request { return &network.Request{Rules: []sdk.NetworkRule{r}} }
	for name, test := range map[string]struct {
		asked   *network.Request
		refused bool
		want    []sdk.NetworkRule
	}{
		"nothing asked":                   {nil, false, has.Rules},
		"all of it, with lower bounds":    {&network.Request{MaxBytes: 10}, false, has.Rules},
		"none":                            {&network.Request{None: true}, false, nil},
		"a host of a pattern":             {one(sdk.NetworkRule{Host: "a.example.com", Methods: []string{"GET"}}), false, []sdk.NetworkRule{{Host: "a.example.com", Ports: []int{80, 443}, Methods: []string{"GET"}}}},
		"a pattern in a pattern":          {one(sdk.NetworkRule{Host: "*.a.example.com", Methods: []string{"HEAD"}, Ports: []int{443}}), false, []sdk.NetworkRule{{Host: "*.a.example.com", Ports: []int{443}, Methods: []string{"HEAD"}}}},
		"a path below another":            {one(sdk.NetworkRule{Host: "api.example.org", Ports: []int{443}, Paths: []string{"/v1/a/*"}}), false, []sdk.NetworkRule{{Host: "api.example.org", Ports: []int{443}, Paths: []string{"/v1/a/*"}}}},
		"what is private stays so":        {one(sdk.NetworkRule{Host: "db.example.org", Ports: []int{5432}, TCP: true}), false, []sdk.NetworkRule{{Host: "db.example.org", Ports: []int{5432}, TCP: true, Private: true}}},
		"another host":                    {one(sdk.NetworkRule{Host: "evil.example"}), true, nil},
		"every host":                      {one(sdk.NetworkRule{Host: "*", Methods: []string{"GET"}}), true, nil},
		"the methods that there are":      {one(sdk.NetworkRule{Host: "a.example.com"}), false, []sdk.NetworkRule{{Host: "a.example.com", Ports: []int{80, 443}, Methods: []string{"GET", "HEAD"}}}},
		"another method":                  {one(sdk.NetworkRule{Host: "a.example.com", Methods: []string{"GET", "POST"}}), true, nil},
		"another path":                    {one(sdk.NetworkRule{Host: "api.example.org", Ports: []int{443}, Paths: []string{"/v2/*"}}), true, nil},
		"the paths that there are":        {one(sdk.NetworkRule{Host: "api.example.org", Ports: []int{443}}), false, []sdk.NetworkRule{{Host: "api.example.org", Ports: []int{443}, Paths: []string{"/v1/*"}}}},
		"another port":                    {one(sdk.NetworkRule{Host: "api.example.org", Paths: []string{"/v1/a"}}), true, nil},
		"a WebSocket that is not allowed": {one(sdk.NetworkRule{Host: "a.example.com", Methods: []string{"GET"}, WebSocket: true}), true, nil},
		"any protocol":                    {one(sdk.NetworkRule{Host: "api.example.org", Ports: []int{443}, TCP: true}), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := network.Check(has, test.asked)
			if test.refused {
				assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotAllowed})
			} else {
				assert.NilError(t, err)
			}
			got := network.Effective(has, test.asked)
			if test.want == nil {
				// What was allowed once, and is not any more, is not given either.
				for _, r := range rulesOf(got) {
					assert.Check(t, network.Check(has, one(r)) == nil, "%v", r)
				}
				return
			}
			assert.DeepEqual(t, got.Rules, test.want)
			assert.DeepEqual(t, got.Secrets, has.Secrets)
			if test.asked != nil && test.asked.MaxBytes > 0 {
				assert.Check(t, is.Equal(got.MaxBytes, int64(10)))
			}
		})
	}
	assert.Check(t, network.Effective(nil, nil) == nil)
	assert.ErrorIs(t, network.Check(nil, &network.Request{}), &sdk.Error{Code: sdk.CodeNotAllowed})
	assert.NilError(t, network.Check(nil, &network.Request{None: true}))
	assert.Check(t, network.Fingerprint(has) != network.Fingerprint(nil))
}

func rulesOf(p *sdk.NetworkPolicy) []sdk.NetworkRule {
	if p == nil {
		return nil
	}
	return p.Rules
}

func TestACopyAsksForNoMoreThanItsOriginal(t *testing.T) {
	rule := func(host string, methods ...string) sdk.NetworkRule {
		return sdk.NetworkRule{Host: host, Ports: []int{443}, Methods: methods}
	}
	rules := func(list ...sdk.NetworkRule) *network.Request { return &network.Request{Rules: list} }
	none, all, few := &network.Request{None: true}, &network.Request{}, &network.Request{MaxConnections: 2, MaxBytes: 50}
	for name, test := range map[string]struct {
		from, asked, want *network.Request
		refused           string
	}{
		"nothing of nothing":             {},
		"of all of the tenant's a part":  {asked: rules(rule("a.example.com")), want: rules(rule("a.example.com"))},
		"nothing asked":                  {from: few, want: few},
		"none":                           {from: few, asked: none, want: none},
		"of none":                        {from: none, want: none},
		"more than none":                 {from: none, asked: all, refused: "network"},
		"lower bounds":                   {from: few, asked: &network.Request{MaxConnections: 1}, want: &network.Request{MaxConnections: 1, MaxBytes: 50}},
		"higher bounds are not given":    {from: few, asked: &network.Request{MaxConnections: 9, MaxBytes: 90}, want: few},
		"bounds of what has other rules": {from: &network.Request{Rules: []sdk.NetworkRule{rule("*.example.com")}, MaxBytes: 50}, asked: rules(rule("a.example.com")), want: &network.Request{Rules: []sdk.NetworkRule{rule("a.example.com")}, MaxBytes: 50}},
		"the methods that there are":     {from: rules(rule("*.example.com", "GET")), asked: rules(rule("a.example.com")), want: rules(rule("a.example.com", "GET"))},
		"another method":                 {from: rules(rule("*.example.com", "GET")), asked: rules(rule("a.example.com", "POST")), refused: "network.allow.0"},
		"another host":                   {from: rules(rule("a.example.com")), asked: rules(rule("a.example.com"), rule("b.example.com")), refused: "network.allow.1"},
		"a wider host":                   {from: rules(rule("a.example.com")), asked: rules(rule("*.example.com")), refused: "network.allow.0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := network.Inherit(test.from, test.asked)
			if test.refused != "" {
				assert.ErrorContains(t, err, "SB012: "+test.refused+": ")
				return
			}
			assert.NilError(t, err)
			assert.DeepEqual(t, got, test.want)
		})
	}
	assert.DeepEqual(t, network.Both(rules(rule("a.example.com")), rules(rule("b.example.com"))), none)
}

func TestBoundsOfATenantAreLoweredAndNotRaised(t *testing.T) {
	rules := []sdk.NetworkRule{{Host: "a.example.com"}}
	for name, test := range map[string]struct {
		had, asked, want int
	}{
		"not set, and more is asked for":    {0, 100_000, 64},
		"not set, and less is asked for":    {0, 10, 10},
		"not set, and nothing is asked for": {0, 0, 0},
		"set, and more is asked for":        {100, 100_000, 100},
		"set, and less is asked for":        {100, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			const each = 10 << 30 / 64 // of bytes, for one of connections
			asked := &network.Request{MaxConnections: test.asked, MaxBytes: int64(test.asked) * each}
			got := network.Effective(&sdk.NetworkPolicy{Rules: rules, MaxConnections: test.had, MaxBytes: int64(test.had) * each}, asked)
			assert.Equal(t, got.MaxConnections, test.want)
			assert.Equal(t, got.MaxBytes, int64(test.want)*each)
		})
	}
}
