package quota_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that goes on when a test says so.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

// noon is twelve hours before the end of a day, which is the last but one of its
// month.
func noon() *clock { return &clock{now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// keeper returns one for the tenant acme and others without limits.
func keeper(t testing.TB, limits quota.Limits, options ...func(*quota.Options)) *quota.Keeper {
	t.Helper()
	opts := quota.Options{Rules: rules(limits)}
	for _, option := range options {
		option(&opts)
	}
	k, err := quota.NewKeeper(opts)
	assert.NilError(t, err)
	t.Cleanup(k.Close)
	return k
}

func rules(limits quota.Limits) quota.Rules {
	return quota.Rules{
		Tenants:    map[string]quota.Limits{"acme": limits},
		Costs:      map[string]quota.Money{"cloud": quota.MoneyOf(0.01)},
		Sizes:      map[string]quota.Size{"local": {MemoryMB: 512, CPUs: 1}},
		MaxWaiting: 2000,
	}
}

func at(c *clock) func(*quota.Options) {
	return func(o *quota.Options) { o.Now = c.Now }
}

func execution(timeout time.Duration) quota.Demand {
	return quota.Demand{Tenant: "acme", Execution: true, Timeout: timeout}
}

func instanceOn(provider string) quota.Demand {
	return quota.Demand{Tenant: "acme", Instance: true, Provider: provider}
}

func admit(t testing.TB, k *quota.Keeper, d quota.Demand) quota.Grant {
	t.Helper()
	g, err := k.Admit(context.Background(), d)
	assert.NilError(t, err)
	return g
}

// used is what the tenant acme has used of a limit.
func used(t testing.TB, k *quota.Keeper, limit quota.Limit) float64 {
	t.Helper()
	for _, line := range k.Usage("acme").Lines {
		if line.Limit == limit {
			return line.Used
		}
	}
	t.Fatalf("no limit %s", limit)
	return 0
}
