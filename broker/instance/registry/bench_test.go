package registry_test

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// noEffects forgets what the registry asks for.
type noEffects struct{}

func (noEffects) Terminate(*registry.Entry)                          {}
func (noEffects) Pause(*registry.Entry)                              {}
func (noEffects) NoteUse(_ *registry.Entry, written func(done bool)) {}
func (noEffects) Ended(registry.Tombstone, *quota.Instance, bool)    {}

// populated is a registry with n running instances, ten of each tenant but for those of
// one tenant, which has share of all.
func populated(b *testing.B, n int, share float64) (*registry.Registry, *provider) {
	b.Helper()
	r, p := registry.New(noEffects{}), &provider{label: "cloud"}
	for i := range n {
		tenant := fmt.Sprintf("tenant-%06d", i/10)
		if float64(i) < share*float64(n) {
			tenant = "large"
		}
		e := begin(b, r, p, registry.ID{Tenant: tenant, Session: fmt.Sprintf("s-%06d", i), Instance: fmt.Sprintf("i-%08d", i)})
		e.StopWaiting(false)
	}
	return r, p
}

// begin claims, makes and records an instance for which one waits.
func begin(b *testing.B, r *registry.Registry, p *provider, id registry.ID) *registry.Entry {
	claim := claimOf(id, p)
	claim.Spec.TTL, claim.Spec.Idle = maxLifetime, maxLifetime
	claimed, err := r.Claim(claim)
	assert.NilError(b, err)
	_, err = claimed.Entry.Made(sdk.Instance{ID: id.Instance}, maxLifetime)
	assert.NilError(b, err)
	claimed.Entry.Created(registry.Ours, nil, nil)
	return claimed.Entry
}

// BenchmarkRegistry shows what operations cost beside 100 instances and beside 100,000:
// as much.
func BenchmarkRegistry(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		r, p := populated(b, n, 0)
		run := func(name string, body func(b *testing.B)) { b.Run(fmt.Sprintf("%s/%d", name, n), body) }
		run("life", func(b *testing.B) { benchmarkLife(b, r, p, "tenant-000000") })
		run("hold", func(b *testing.B) {
			for b.Loop() {
				e, err := r.Hold("tenant-000000", "tenant-000000:s-000000:i-00000000")
				assert.NilError(b, err)
				e.Drop(false)
			}
		})
		run("expire nothing", func(b *testing.B) {
			now := time.Now()
			for b.Loop() {
				r.Expire(now)
			}
		})
		run("expire one", func(b *testing.B) {
			e := begin(b, r, p, registry.ID{Tenant: "tenant-000000", Session: "due", Instance: "due"})
			e.StopWaiting(false)
			_, _, err := r.Destroy("tenant-000000", e.ID().String(), "", "")
			assert.NilError(b, err)
			now := time.Now()
			for b.Loop() {
				e.TerminationFailed(now)
				r.Expire(now)
			}
			e.Terminated(e.Tombstone())
		})
		run("charge one", func(b *testing.B) {
			e, _ := r.ByName("i-00000000")
			now := time.Now()
			for b.Loop() {
				e.Charged(now)
				if due := r.Chargeable(now); len(due) != 1 {
					b.Fatal(len(due))
				}
			}
		})
		run("list of ten", func(b *testing.B) {
			for b.Loop() {
				if page, _ := r.List("tenant-000000", registry.ListRequest{}); len(page) != 10 {
					b.Fatal(len(page))
				}
			}
		})
		run("count", func(b *testing.B) {
			for b.Loop() {
				if all, _ := r.Count(p); all != n {
					b.Fatal(all)
				}
			}
		})
		run("counts", func(b *testing.B) {
			for b.Loop() {
				r.Counts()
			}
		})
	}
}

// BenchmarkLargeTenant is the life of an instance whose tenant has all others too.
func BenchmarkLargeTenant(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		r, p := populated(b, n, 1)
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkLife(b, r, p, "large") })
	}
}

// benchmarkLife has a session's instance claimed, made, used and ended.
func benchmarkLife(b *testing.B, r *registry.Registry, p *provider, tenant string) {
	for i := 0; b.Loop(); i++ {
		e := begin(b, r, p, registry.ID{Tenant: tenant, Session: "a", Instance: fmt.Sprintf("b-%08d", i)})
		e.StopWaiting(true)
		e.Release()
		_, _, err := r.Destroy(tenant, e.ID().String(), "", "")
		assert.NilError(b, err)
		e.Terminated(e.Tombstone())
	}
}
