package providertest_test

import (
	"context"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// otherwise has instances made with another network than was asked for.
func otherwise(c *capable, change func(*sdk.NetworkPolicy)) {
	c.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
		if req.Network != nil {
			policy := *req.Network
			policy.Rules = append([]sdk.NetworkRule(nil), policy.Rules...)
			change(&policy)
			req.Network = &policy
		}
		return c.Provider.Create(ctx, req)
	}
}

func eachRule(change func(*sdk.NetworkRule)) func(*capable) {
	return func(c *capable) {
		otherwise(c, func(p *sdk.NetworkPolicy) {
			for n := range p.Rules {
				change(&p.Rules[n])
			}
		})
	}
}

func TestWrongNetworksAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"nothing is reached": {
			among: "network/(an instance reaches what)", fails: []string{"network/an instance reaches what its policy names"},
			wraps: changing(eachRule(func(r *sdk.NetworkRule) { r.Private = false })),
		},
		"a host on this machine is reached without leave": {
			among: "network/(a host on)", fails: []string{"network/a host on this machine needs a policy that says so"},
			wraps: changing(eachRule(func(r *sdk.NetworkRule) { r.Private = true })),
		},
		"methods do not matter": {
			among: "network/(a method)", fails: []string{"network/a method that the policy does not name is refused"},
			wraps: changing(eachRule(func(r *sdk.NetworkRule) { r.Methods = nil })),
		},
		"paths do not matter": {
			among: "network/(a path)", fails: []string{"network/a path that the policy does not name is refused"},
			wraps: changing(eachRule(func(r *sdk.NetworkRule) { r.Paths = nil })),
		},
		"hosts do not matter": {
			among: "network/(an instance reaches nothing)", fails: []string{"network/an instance reaches nothing that its policy does not name"},
			wraps: changing(eachRule(func(r *sdk.NetworkRule) { r.Host = "127.0.0.1" })),
		},
		"a new policy is taken and forgotten": {
			among: "network/(another|an instance that had|what a new)", patience: 0.1,
			fails: []string{"network/another policy takes the place of the first", "network/an instance that had no network gets one", "network/what a new policy does not allow is cut off when it is in force"},
			wraps: changing(func(c *capable) {
				c.setNetwork = func(context.Context, string, sdk.NetworkPolicy) error { return nil }
			}),
		},
		"a new policy is everybody's": {
			among: "network/(a policy is that)", fails: []string{"network/a policy is that of one instance"},
			wraps: changing(func(c *capable) {
				c.setNetwork = func(ctx context.Context, _ string, policy sdk.NetworkPolicy) error {
					all, err := c.List(ctx)
					for _, i := range all {
						_ = c.Provider.SetNetwork(ctx, i.ID, policy)
					}
					return err
				}
			}),
		},
		"nothing is told": {
			among: "network/(what instances)", patience: 0.1, fails: []string{"network/what instances do is told"},
			wraps: changing(func(c *capable) {
				c.follow = func(ctx context.Context, _ func(sdk.NetworkReport) error) error {
					<-ctx.Done()
					return ctx.Err()
				}
			}),
		},
		"what was refused is not told": {
			among: "network/(what instances)", patience: 0.1, fails: []string{"network/what instances do is told"},
			wraps: changing(func(c *capable) {
				c.follow = func(ctx context.Context, report func(sdk.NetworkReport) error) error {
					return c.Provider.FollowNetwork(ctx, func(r sdk.NetworkReport) error {
						var kept []sdk.NetworkConnection
						for _, one := range r.Connections {
							if one.Verdict == sdk.NetworkAllowed {
								kept = append(kept, one)
							}
						}
						return report(sdk.NetworkReport{Connections: kept, Lost: 1})
					})
				}
			}),
		},
		"unknown instances are taken": {
			among: "network/(an unknown)", fails: []string{"network/an unknown instance is not found"},
			wraps: changing(func(c *capable) {
				c.setNetwork = func(ctx context.Context, id string, policy sdk.NetworkPolicy) error {
					return forgiving(c.Provider.SetNetwork(ctx, id, policy), sdk.CodeNotFound)
				}
			}),
		},
	})
}
