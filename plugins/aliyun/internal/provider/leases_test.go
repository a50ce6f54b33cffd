package provider

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/records"
)

// clocks is a data plane that ends sandboxes nobody has asked for anything for long.
type clocks struct {
	dataPlane
	mu   sync.Mutex
	idle time.Duration
	used map[string]time.Time
	asks map[string]int
}

func (c *clocks) Ready(_ context.Context, id string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks[id]++
	if time.Since(c.used[id]) > c.idle {
		return false, &agentrun.Failure{Status: 404, Code: agentrun.NotFound}
	}
	c.used[id] = time.Now()
	return true, nil
}

func (c *clocks) alive(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.used[id]) <= c.idle
}

func (c *clocks) asked(ids ...string) (times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		times += c.asks[id]
	}
	return times
}

func TestSandboxesLiveAsLongAsTheirInstancesAndTheProviderDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(hclog.NewNullLogger()).(*Provider)
		p.settings.IdleTimeout, p.owner = time.Minute, ownerOf("broker", "aliyun")
		c := &clocks{idle: time.Minute, used: map[string]time.Time{}, asks: map[string]int{}}
		p.data = inside{c, &p.leases}
		var err error
		p.records, err = records.Open[record]("instances", t.TempDir(), nil)
		assert.NilError(t, err)
		put := func(one record) {
			assert.NilError(t, p.records.Put(one.ID, one))
			c.used[one.ID] = time.Now()
		}
		kept, short, paused, unfinished, adopted, stranger := p.nameOf("kept", 0), p.nameOf("short", 0), p.nameOf("paused", 0), p.nameOf("unfinished", 0), p.nameOf("adopted", 0), "stranger"
		put(record{ID: kept, Workspace: "/workspace", KeepUntil: time.Now().Add(6 * time.Hour)})
		put(record{ID: short, Workspace: "/workspace", KeepUntil: time.Now().Add(5 * time.Minute)})
		put(record{ID: paused, Workspace: "/workspace", Paused: true})
		put(record{ID: unfinished})
		put(record{ID: adopted, Adopted: true})
		put(record{ID: stranger, Workspace: "/workspace"})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.keepAlive(ctx) })

		time.Sleep(4 * time.Minute)
		synctest.Wait()
		assert.Check(t, c.alive(kept) && c.alive(short) && c.alive(adopted))
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Check(t, c.alive(kept))
		assert.Check(t, !c.alive(short), "its instance has had its time")
		assert.Equal(t, c.asked(paused, unfinished, stranger), 0)

		before := c.asked(kept)
		for range 12 { // it is in use
			time.Sleep(10 * time.Second)
			p.leases.touch(kept)
			c.mu.Lock()
			c.used[kept] = time.Now()
			c.mu.Unlock()
		}
		synctest.Wait()
		assert.Equal(t, c.asked(kept), before, "what is used needs nobody")

		c.mu.Lock()
		c.used[kept] = time.Now().Add(-time.Hour) // the service has ended it
		c.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		before = c.asked(kept)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, c.asked(kept), before, "nobody asks for what has ended")
		cancel()
		running.Wait()
	})
}

// An idle timeout is that of who made the sandbox.
func TestSandboxesWithAnotherIdleTimeoutAreKeptAliveToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(hclog.NewNullLogger()).(*Provider)
		p.settings.IdleTimeout, p.owner = 6*time.Hour, ownerOf("broker", "aliyun")
		id := p.nameOf("made by another", 0)
		c := &clocks{idle: time.Minute, used: map[string]time.Time{id: time.Now()}, asks: map[string]int{}}
		p.data = inside{c, &p.leases}
		var err error
		p.records, err = records.Open[record]("instances", t.TempDir(), nil)
		assert.NilError(t, err)
		assert.NilError(t, p.records.Put(id, record{ID: id, Adopted: true, Idle: time.Minute}))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.keepAlive(ctx) })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Check(t, c.alive(id))
		cancel()
		running.Wait()
	})
}
