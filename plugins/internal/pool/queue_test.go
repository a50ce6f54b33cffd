package pool_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
)

// ask is a request, named by its tenant and template.
type ask struct{ tenant, template string }

func many(n int, a ask) []ask { return slices.Repeat([]ask{a}, n) }

// Only one sandbox may exist, so requests are served one after the other, as the
// one before is released.
func TestTenantsTakeTurns(t *testing.T) {
	python := func(tenant string) ask { return ask{tenant, "python"} }
	cases := map[string]struct {
		asks, want []ask
	}{
		"one tenant is served in the order of arrival": {
			[]ask{{"a", "python"}, {"a", "bash"}, {"a", "nodejs"}},
			[]ask{{"a", "python"}, {"a", "bash"}, {"a", "nodejs"}},
		},
		"a hundred requests delay another tenant's one by a turn": {
			append(many(100, python("a")), python("b")),
			append([]ask{python("a"), python("b")}, many(99, python("a"))...),
		},
		"three tenants take turns until each has what it wants": {
			[]ask{python("a"), python("a"), python("a"), python("b"), python("c"), python("b")},
			[]ask{python("a"), python("b"), python("c"), python("a"), python("b"), python("a")},
		},
		"templates make no difference to the turns": {
			[]ask{python("a"), python("a"), {"a", "bash"}, {"b", "bash"}, {"b", "python"}},
			[]ask{python("a"), {"b", "bash"}, python("a"), {"b", "python"}, {"a", "bash"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &factory{gate: make(chan struct{})}
				p := newPool(t, f, 0, 1)
				var served []ask
				var mu sync.Mutex
				for _, a := range c.asks {
					go func() {
						b, err := p.Acquire(t.Context(), pool.Request{Template: a.template, Tenant: a.tenant, Patience: time.Hour})
						if !assert.Check(t, err) {
							return
						}
						mu.Lock()
						served = append(served, ask{a.tenant, b.template})
						mu.Unlock()
						assert.Check(t, b.Destroy(t.Context()))
						p.Release()
					}()
					synctest.Wait() // it stands in the queue
				}
				close(f.gate)
				synctest.Wait()
				assert.Check(t, slices.Equal(served, c.want), "%v", served)
				assert.Equal(t, p.Stats().Waiting, 0)
			})
		})
	}
}

// What is made next is for whose turn is next, also while the one before is still
// being made.
func TestSandboxesAreMadeInTheOrderOfTheTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := newPool(t, f, 0, 2)
		acquire := func(tenant, template string) *box {
			b, err := p.Acquire(t.Context(), pool.Request{Template: template, Tenant: tenant, Patience: time.Hour})
			assert.Check(t, err)
			return b
		}
		release := func(b *box) {
			assert.Check(t, b.Destroy(t.Context()))
			p.Release()
		}
		used := []*box{acquire("c", "nodejs"), acquire("c", "nodejs")}
		f.gate, f.asked = make(chan struct{}), nil
		for _, a := range []ask{{"a", "python"}, {"a", "python"}, {"b", "bash"}} {
			go func() { release(acquire(a.tenant, a.template)) }()
			synctest.Wait()
		}
		release(used[0])
		synctest.Wait()
		release(used[1])
		synctest.Wait()
		close(f.gate)
		synctest.Wait()
		assert.DeepEqual(t, f.asked, []string{"python", "bash", "python"})
	})
}

func TestWhoGaveUpLosesNoTurnForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{gate: make(chan struct{})}
		p := newPool(t, f, 0, 1)
		wait := func(tenant string, patience time.Duration) <-chan error {
			done := make(chan error, 1)
			go func() {
				b, err := p.Acquire(t.Context(), pool.Request{Template: "python", Tenant: tenant, Patience: patience})
				if err == nil {
					assert.Check(t, b.Destroy(t.Context()))
					p.Release()
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first := wait("a", time.Hour)
		for range 5 {
			wait("a", time.Hour)
		}
		other := wait("b", time.Hour)
		hasty := wait("a", time.Second)
		assert.ErrorContains(t, <-hasty, "7 requests were waiting when this one came, 6 of them of this tenant")
		alone := wait("c", time.Second)
		assert.ErrorContains(t, <-alone, "7 requests were waiting when this one came, 0 of them of this tenant")
		assert.Check(t, is.Equal(p.Stats().GivenUp, int64(2)))
		assert.Check(t, is.Equal(p.Stats().WaitTime, 2*time.Second))

		f.gate <- struct{}{}
		assert.NilError(t, <-first)
		f.gate <- struct{}{}
		assert.NilError(t, <-other)
		close(f.gate)
		synctest.Wait()
		assert.Equal(t, p.Stats().Waiting, 0)
	})
}
