package chaos_test

import (
	"context"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"
)

// holder is an actor that has instances.
type holder interface {
	actor
	has() int
	// destroy has one of them destroyed.
	destroy(ctx context.Context)
}

// has is how many instances the client was told of and has not ended.
func (c *client) has() int { return len(c.held) }

// finish ends all that there is, when all is well. Before the end of all, sandboxes of
// E2B's door are paused by their timeouts, and the broker is killed; they go on with the
// next one.
func (w *world) finish() {
	w.t.Helper()
	w.endAll()
	if len(w.backends) > 0 {
		w.finishReal()
		return
	}
	var napping []*e2bClient
	for _, one := range w.clients {
		if c, ok := one.(*e2bClient); ok {
			c.fallAsleep()
			napping = append(napping, c)
		}
	}
	for _, c := range napping {
		c.awaitNap()
	}
	w.restart()
	for _, c := range napping {
		c.wakeUp()
	}
	w.endAll()
}

// endAll has the clients end what they have, by the ways that they have, and then what is
// nobody's.
func (w *world) endAll() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), w.pace.settle)
	defer cancel()
	for _, one := range w.clients {
		o, ok := one.(holder)
		assert.Assert(w.t, ok, "%T ends nothing", one)
		for o.has() > 0 {
			assert.NilError(w.t, ctx.Err(), "%T cannot end what it has\n%s", one, w.lastLog())
			o.destroy(ctx)
		}
	}
	w.settle()
	w.check()                                      // before anything else ends what a door has only said to have ended
	for _, one := range w.clients[:len(tenants)] { // those of the broker's own API
		c, ok := one.(*client)
		assert.Assert(w.t, ok)
		c.held = c.listed().List
		for c.has() > 0 {
			c.destroy(ctx)
		}
	}
	for _, one := range w.clients {
		if c, ok := one.(*keeper); ok {
			c.endRest(ctx)
		}
	}
	w.settle()
	assert.Equal(w.t, len(w.alive()), 0, "they were all ended")
	w.nothingKept()
}

// fallAsleep makes a sandbox with a file, whose timeout is to pause it soon.
func (c *e2bClient) fallAsleep() {
	t, ctx := c.world.t, context.Background()
	t.Helper()
	c.count++
	c.create(ctx, e2bTimeout, true)
	assert.Assert(t, c.has() == 1, "%s gets no sandbox\n%s", c.tenant, c.world.lastLog())
	b := c.box()
	wrote := c.write(ctx, b)
	assert.Assert(t, wrote.acknowledged(), "%+v", wrote)
	moved := c.renew(ctx, b)
	assert.Assert(t, moved.acknowledged(), "%+v", moved)
}

// awaitNap waits until its sandbox is paused, as its door and its cloud say.
func (c *e2bClient) awaitNap() {
	w, b := c.world, c.box()
	w.t.Helper()
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		looked := c.look(b)
		for id := range w.frozen() {
			if lastPart(id) == b.id && looked.acknowledged() && looked.Paused {
				return poll.Success()
			}
		}
		return poll.Continue("%+v\n%s", looked, w.lastLog())
	}, poll.WithTimeout(leakBound), poll.WithDelay(50*time.Millisecond))
}

// wakeUp connects to the sandbox again, and finds what was in it.
func (c *e2bClient) wakeUp() {
	t, b := c.world.t, c.box()
	t.Helper()
	before := c.look(b)
	assert.Assert(t, before.acknowledged() && before.Paused, "a nap outlives the broker: %+v", before)
	b.naps = false // it is to stay awake for as long as this takes
	b.expires = time.Now().Add(e2bTimeout)
	woken := c.thaw(context.Background(), b)
	assert.Assert(t, woken.acknowledged(), "%+v", woken)
	for _, of := range b.files {
		found := c.readFile(b, of)
		assert.Check(t, found.acknowledged() && found.Printed == of.token, "%+v", found)
	}
}
