package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
)

// keeping is a pool that keeps nothing ready.
func keeping(f *factory, most int) *pool.Pool[*box] {
	return pool.New(pool.Options[*box]{
		Make: f.make, Templates: map[string]int{"python": 1, "bash": 1}, Max: most, MakeTimeout: time.Minute,
		CheckInterval: time.Minute, KeepFor: 30 * time.Second, Logger: hclog.NewNullLogger(),
	})
}

func request(tenant, template string, reuse bool) pool.Request {
	return pool.Request{Tenant: tenant, Template: template, Reuse: reuse, Patience: time.Minute}
}

func TestAKeptSandboxIsItsTenantsAlone(t *testing.T) {
	cases := map[string]struct {
		next pool.Request
		want bool
	}{
		"the same tenant":  {request("a", "python", true), true},
		"another tenant":   {request("b", "python", true), false},
		"another template": {request("a", "bash", true), false},
		"a fresh one":      {request("a", "python", false), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &factory{}
				p := keeping(f, 10)
				first, err := p.Acquire(t.Context(), request("a", "python", true))
				assert.NilError(t, err)
				p.Keep("a", "python", first)
				second, err := p.Acquire(t.Context(), c.next)
				assert.NilError(t, err)
				assert.Equal(t, first == second, c.want)
				assert.NilError(t, second.Destroy(t.Context()))
				p.Release()
				p.Close()
				assert.Equal(t, f.count(), 0)
			})
		})
	}
}

func TestAKeptSandboxEndsWhenNobodyWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := keeping(f, 10)
		s, err := p.Acquire(t.Context(), request("a", "python", true))
		assert.NilError(t, err)
		p.Keep("a", "python", s)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Equal(t, f.count(), 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, f.count(), 0)
		p.Close()
	})
}

// One that has ended meanwhile is given to nobody.
func TestAKeptSandboxThatHasEndedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := keeping(f, 10)
		first, err := p.Acquire(t.Context(), request("a", "python", true))
		assert.NilError(t, err)
		p.Keep("a", "python", first)
		assert.NilError(t, first.Destroy(t.Context()))
		second, err := p.Acquire(t.Context(), request("a", "python", true))
		assert.NilError(t, err)
		assert.Assert(t, first != second)
		assert.NilError(t, second.Destroy(t.Context()))
		p.Release()
		p.Close()
	})
}

// Who waits gets what its tenant gives back, and else the room of it.
func TestWhoWaitsGetsAKeptSandboxOrItsRoom(t *testing.T) {
	for name, reuse := range map[string]bool{"its tenant": true, "somebody else": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &factory{}
				p := keeping(f, 1)
				first, err := p.Acquire(t.Context(), request("a", "python", true))
				assert.NilError(t, err)
				got := make(chan *box, 1)
				go func() {
					s, err := p.Acquire(context.WithoutCancel(t.Context()), request("a", "python", reuse))
					assert.Check(t, err)
					got <- s
				}()
				synctest.Wait()
				p.Keep("a", "python", first)
				second := <-got
				assert.Equal(t, first == second, reuse)
				assert.Equal(t, f.most(), 1)
				assert.NilError(t, second.Destroy(t.Context()))
				p.Release()
				p.Close()
			})
		})
	}
}
