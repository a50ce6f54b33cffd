package broker

import (
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// quotaRules are what the generation says of quotas.
func (g *generation) quotaRules() quota.Rules { return quotaRules(g.cfg, g.current) }

// quotaRules are what a configuration says, with the providers that have started.
func quotaRules(cfg *config.Config, providers []*revision) quota.Rules {
	rules := quota.Rules{
		Tenants:    map[string]quota.Limits{},
		Costs:      map[string]quota.Money{},
		Sizes:      map[string]quota.Size{},
		MaxWaiting: int(cfg.Limits.MaxWaiting),
	}
	for _, t := range cfg.Tenants {
		rules.Tenants[t.Name] = quotaLimits(t.Quota)
	}
	for _, p := range cfg.Providers {
		rules.Costs[p.Label] = quota.MoneyOf(p.CostPerSecond)
	}
	for _, r := range providers {
		rules.Sizes[r.Label()] = instanceSize(r.settings)
	}
	return rules
}

func quotaLimits(q config.Quota) quota.Limits {
	return quota.Limits{
		Instances: q.MaxInstances, Concurrent: q.MaxConcurrent,
		RequestsPerSecond: q.RequestsPerSecond,
		ExecutionsPerDay:  q.ExecutionsPerDay, ExecutionTimePerDay: q.ExecutionTimePerDay,
		Size:        quota.Size{MemoryMB: q.MaxMemoryMB, CPUs: q.MaxCPUs},
		MoneyPerDay: quota.MoneyOf(q.MoneyPerDay), MoneyPerMonth: quota.MoneyOf(q.MoneyPerMonth),
	}
}

// instanceSize is that of a provider's instances, where its settings say it in the
// words that our own providers use.
func instanceSize(settings sdk.Settings) quota.Size {
	var size quota.Size
	size.MemoryMB, _ = settings["memory_mb"].(int64)
	switch cpus := settings["cpus"].(type) {
	case int64:
		size.CPUs = float64(cpus)
	case float64:
		size.CPUs = cpus
	}
	return size
}

// quotaMetrics are what the metrics say of quotas.
func (b *broker) quotaMetrics(most int) []metrics.Quota {
	var all []metrics.Quota
	for _, usage := range b.quotas.Usages(most) {
		q := metrics.Quota{
			Tenant: usage.Tenant, Waiting: usage.Waiting,
			Used: map[string]float64{}, Limits: map[string]float64{}, Refused: map[string]int64{},
		}
		for _, line := range usage.Lines {
			if line.Limit != quota.MaxMemoryMB && line.Limit != quota.MaxCPUs {
				q.Used[string(line.Limit)] = line.Used
			}
			if line.Max > 0 {
				q.Limits[string(line.Limit)] = line.Max
			}
		}
		for limit, n := range usage.Refused {
			q.Refused[string(limit)] = n
		}
		all = append(all, q)
	}
	return all
}
