package registry_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// callers that use one registry at the same time, and about how many calls of it each of
// their requests makes.
const callers, callsOfRequest = 25, 10

// crowd is a registry with all that calls it: requests, makers of instances, destroyers,
// who writes to the journal, a reaper, administrators.
type crowd struct {
	t    *testing.T
	seed uint64
	reg  *registry.Registry
	wg   sync.WaitGroup
	over chan struct{}

	mu      sync.Mutex
	rand    *rand.Rand
	catalog []*provider
	retired map[*provider]<-chan struct{}

	n, begun, ended atomic.Int64
}

func TestConcurrentCallersKeepTheModelsRules(t *testing.T) {
	forEachSeed(t, 10, func(t *testing.T, seed uint64, steps int) {
		c := &crowd{
			t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), over: make(chan struct{}),
			catalog: []*provider{{label: "a"}, {label: "b", ephemeral: true}}, retired: map[*provider]<-chan struct{}{},
		}
		c.reg = registry.New(c)
		var requests sync.WaitGroup
		for range callers {
			requests.Go(func() {
				for range max(1, steps/callers/callsOfRequest) {
					c.request()
				}
			})
		}
		for _, every := range []func(){c.reap, c.administer, c.look} {
			c.wg.Go(func() { c.again(every) })
		}
		requests.Wait()
		close(c.over)
		c.wg.Wait()
		c.end()
	})
}

func (c *crowd) chance(percent int) bool { return c.intn(100) < percent }

func (c *crowd) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

func (c *crowd) sleep(most time.Duration) { time.Sleep(time.Duration(c.intn(int(most)))) }

func (c *crowd) want(ok bool, format string, args ...any) {
	assert.Check(c.t, ok, "-seed %d: wanted: %s", c.seed, fmt.Sprintf(format, args...))
}

// again does something every now and then, until the requests are over.
func (c *crowd) again(what func()) {
	for {
		select {
		case <-c.over:
			return
		case <-time.After(time.Duration(c.intn(int(time.Second)))):
			what()
		}
	}
}

// Terminate implements registry.Effects.
func (c *crowd) Terminate(e *registry.Entry) {
	c.wg.Go(func() {
		c.sleep(time.Second)
		if c.chance(20) {
			e.TerminationFailed(time.Now().Add(time.Second))
			return
		}
		e.Terminated(e.Tombstone())
	})
}

// Pause implements registry.Effects.
func (c *crowd) Pause(e *registry.Entry) {
	c.wg.Go(func() {
		<-e.Quiet()
		c.sleep(time.Second)
		if c.chance(40) {
			e.EndPauseFailed(c.chance(30))
			return
		}
		e.EndSwitch(true)
	})
}

// NoteUse implements registry.Effects.
func (c *crowd) NoteUse(_ *registry.Entry, written func(done bool)) {
	c.wg.Go(func() {
		c.sleep(2 * time.Second)
		written(c.chance(80))
	})
}

// Ended implements registry.Effects.
func (c *crowd) Ended(registry.Tombstone, *quota.Instance, bool) { c.ended.Add(1) }

func (c *crowd) provider() *provider {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catalog[c.rand.IntN(len(c.catalog))]
}

func (c *crowd) offers(p *provider) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, offered := range c.catalog {
		if offered == p {
			return true
		}
	}
	return false
}

// request wants the instance of a session, and uses it.
func (c *crowd) request() {
	p := c.provider()
	id := registry.ID{Tenant: fmt.Sprint("t", c.intn(3)), Session: fmt.Sprint("s", c.intn(5)), Instance: fmt.Sprintf("%08d", c.n.Add(1))}
	claim := claimOf(id, p)
	claim.Offered = func() bool { return c.offers(p) }
	claim.Spec.TTL, claim.Spec.Idle, claim.Spec.Fixed = 3*time.Second, 5*time.Second, c.chance(30)
	claim.Spec.PauseAtEnd = c.chance(30)
	claimed, err := c.reg.Claim(claim)
	if err != nil {
		c.sleep(time.Second)
		return
	}
	e := claimed.Entry
	if claimed.Begun {
		c.begun.Add(1)
		cancelled := make(chan struct{})
		e.OnCancel(sync.OnceFunc(func() { close(cancelled) }))
		c.wg.Go(func() { c.make(e, cancelled) })
	}
	held := claimed.Held
	if !held {
		held = c.await(e)
	}
	if held {
		c.use(e)
	}
}

// await waits for a creation, for a while, and turns away from it now and then.
func (c *crowd) await(e *registry.Entry) (held bool) {
	patience := time.After(time.Duration(c.intn(int(3 * time.Second))))
	for i := e.Snapshot(); !i.State.Decided() && !i.State.Detached(); i = e.Snapshot() {
		select {
		case <-i.Changed:
			continue
		case <-patience:
		}
		if c.chance(50) && e.Detach() && c.chance(50) {
			c.sleep(time.Second)
			e.Reclaim()
		}
		break
	}
	_, held = e.StopWaiting(true)
	return held
}

// make is the creation of an instance.
func (c *crowd) make(e *registry.Entry, cancelled <-chan struct{}) {
	select {
	case <-time.After(time.Duration(c.intn(int(2 * time.Second)))):
	case <-cancelled:
	}
	switch n := c.intn(10); {
	case n == 0:
		e.Created(registry.Refused, errRefused, nil)
	case n < 3:
		if i := e.Created(registry.Uncertain, errRefused, nil); !i.State.Unclear() {
			return // lost with its provider
		}
		c.sleep(3 * time.Second)
		if !e.Found() {
			e.Nothing(true)
			return
		}
		c.finish(e)
	default:
		c.finish(e)
	}
}

func (c *crowd) finish(e *registry.Entry) {
	box := sdk.Instance{ID: "box-" + e.ID().Instance}
	if c.chance(3) { // one that somebody may have
		box.ID = fmt.Sprintf("box-%08d", c.n.Load()-int64(c.intn(10)))
	}
	outcome := registry.Ours
	_, err := e.Made(box, 20*time.Second)
	if err == nil {
		if c.sleep(time.Second); c.chance(5) {
			outcome, err = registry.Unrecorded, errRefused
		}
	}
	e.Created(outcome, err, nil)
}

// use does what one does with an instance.
func (c *crowd) use(e *registry.Entry) {
	defer e.WhenOver(func() {
		c.want(!time.Now().Before(e.Snapshot().Deadline) || e.Snapshot().Fixed, "an alarm at the end of %s", e.ID())
	})()
	switch n := c.intn(10); {
	case n < 2:
		if pause := c.chance(50); e.BeginSwitch(pause) == nil {
			c.sleep(time.Second)
			e.EndSwitch(c.chance(80))
		}
	case n < 4:
		_, _, _ = c.reg.Renew(e.ID().Tenant, e.ID().String(), time.Second, time.Minute)
		_, _, _ = c.reg.Relabel(e.ID().Tenant, e.ID().String(), func(labels map[string]string) error {
			labels["n"] = e.ID().Instance
			return nil
		})
		_, _, _ = c.reg.Named(e.ID().Instance)
	default:
		if e.BeginExecution() == nil {
			c.sleep(2 * time.Second)
			e.EndExecution()
		}
	}
	if c.chance(10) {
		e.Discard(c.chance(50))
	}
	if i := e.Snapshot(); i.State != registry.Gone && i.State != registry.Terminating {
		e.AwaitUse()
	}
	switch {
	case c.chance(20):
		e.Drop(c.chance(50))
	default:
		e.Release()
	}
}

func (c *crowd) reap() {
	c.reg.Expire(time.Now())
	for _, e := range c.reg.Chargeable(time.Now()) {
		e.Charged(time.Now().Add(time.Second))
	}
}

// administer destroys, removes a tenant, or replaces a provider.
func (c *crowd) administer() {
	switch n := c.intn(20); {
	case n == 0:
		name := fmt.Sprint("t", c.intn(3))
		c.reg.RemoveTenants(func(tenant string) bool { return tenant != name }, "removed")
	case n < 3:
		old := c.provider()
		c.mu.Lock()
		for i, p := range c.catalog {
			if p == old {
				c.catalog[i] = &provider{label: p.label, ephemeral: p.ephemeral}
			}
		}
		c.mu.Unlock()
		c.retired[old] = c.reg.Retire(old)
		if n == 1 {
			c.reg.LoseAll(old, registry.ReasonRemoved)
		}
	default:
		for _, i := range c.reg.On(c.provider()) {
			if c.chance(10) {
				e, _, err := c.reg.Destroy(i.ID().Tenant, i.ID().String(), "", registry.ReasonKilled)
				if err == nil {
					c.Terminate(e)
				}
			}
			i.Charged(time.Now().Add(time.Second))
		}
	}
}

// look reads, and has the indexes checked.
func (c *crowd) look() {
	err := c.reg.Check()
	c.want(err == nil, "indexes that agree: %v", err)
	all, more := c.reg.ListAll(registry.ListRequest{})
	c.want(!more, "the whole list")
	of, boxes := map[registry.SessionKey]registry.ID{}, map[registry.SandboxKey]registry.ID{}
	for _, i := range all {
		key := registry.SessionKey{Tenant: i.ID.Tenant, Session: i.ID.Session, Provider: i.Label}
		other, two := of[key]
		c.want(!two, "that %v has one instance, not %s and %s", key, i.ID, other)
		of[key] = i.ID
		box := registry.SandboxKey{Provider: i.Label, ID: i.Sandbox.ID}
		other, two = boxes[box]
		c.want(!two, "that %v is one session's, not that of %s and %s", box, i.ID, other)
		boxes[box] = i.ID
	}
}

// end ends what is left, and there is nothing then.
func (c *crowd) end() {
	for _, p := range c.catalog {
		c.retired[p] = c.reg.Retire(p)
	}
	for p, empty := range c.retired {
		c.reg.LoseAll(p, registry.ReasonRemoved)
		<-empty
	}
	err := c.reg.Check()
	c.want(err == nil, "indexes that agree: %v", err)
	for label, states := range c.reg.Counts() {
		c.want(len(states) == 0, "none left of %s: %v", label, states)
	}
	c.want(c.ended.Load() == c.begun.Load(), "as many ends as beginnings: %d, %d", c.ended.Load(), c.begun.Load())
}
