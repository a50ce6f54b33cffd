package quota

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
)

// What brokers ask each other about what tenants have used.
const (
	aboutUsage = "usage"
	aboutUsers = "usage of all tenants"
)

// usageQuestion asks for that of a tenant.
type usageQuestion struct{ Tenant string }

// Answers are what this broker tells others of what tenants have used of it.
func (k *Keeper) Answers() peer.Answers {
	return peer.Answers{
		aboutUsage: peer.Answering(func(_ context.Context, q usageQuestion) (Usage, error) { return k.Usage(q.Tenant), nil }),
		aboutUsers: peer.Answering(func(context.Context, struct{}) ([]Usage, error) { return k.All(), nil }),
	}
}

// UsageEverywhere is Usage of all brokers that live together. The error is SB009 where not all
// have answered.
func (k *Keeper) UsageEverywhere(ctx context.Context, tenant string) (Usage, error) {
	told, err := peer.AskAll[Usage](ctx, k.others, aboutUsage, usageQuestion{tenant})
	if err != nil {
		return Usage{}, err
	}
	sum := k.Usage(tenant)
	for _, t := range told {
		sum = sum.with(t.Answer)
	}
	return sum, nil
}

// AllEverywhere is All of all brokers that live together. With a peer.SilentError comes the sum
// of those that have answered.
func (k *Keeper) AllEverywhere(ctx context.Context) ([]Usage, error) {
	told, err := peer.AskAll[[]Usage](ctx, k.others, aboutUsers, struct{}{})
	if _, some := peer.Silent(err); !some {
		return nil, err
	}
	sums := map[string]Usage{}
	for _, u := range k.All() {
		sums[u.Tenant] = u
	}
	for _, t := range told {
		for _, u := range t.Answer {
			if sum, known := sums[u.Tenant]; known {
				u = sum.with(u)
			}
			sums[u.Tenant] = u
		}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b Usage) int { return cmp.Compare(a.Tenant, b.Tenant) }), err
}

// with adds what another broker has counted. What may be used is as this one has it.
func (u Usage) with(other Usage) Usage {
	used := map[Limit]float64{}
	for _, line := range other.Lines {
		used[line.Limit] = line.Used
	}
	sum := Usage{Tenant: u.Tenant, Lines: slices.Clone(u.Lines), Waiting: u.Waiting + other.Waiting, Refused: maps.Clone(u.Refused)}
	for i := range sum.Lines {
		sum.Lines[i].Used += used[sum.Lines[i].Limit]
	}
	for limit, n := range other.Refused {
		if sum.Refused == nil {
			sum.Refused = map[Limit]int64{}
		}
		sum.Refused[limit] += n
	}
	return sum
}
