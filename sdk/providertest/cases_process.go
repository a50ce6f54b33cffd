package providertest

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func processCases() []Case {
	const group = "process"
	return []Case{
		{Group: group, Name: "it ends in order", fresh: true, run: endsInOrder},
		{Group: group, Name: "it ends in order with an instance alive", fresh: true, run: endsWithInstance},
		{Group: group, Name: "it ends in order while code runs", fresh: true, run: endsWhileCodeRuns},
		{Group: group, Name: "it ends in order before it is configured", fresh: true, run: endsUnconfigured},
		{Group: group, Name: "after a restart List and Execute agree", fresh: true, run: agreesAfterRestart},
		{Group: group, Name: "after a kill List and Execute agree", fresh: true, run: agreesAfterKill},
		{Group: group, Name: "code ends with a process that is killed", fresh: true, run: codeEndsWithKill},
		{Group: group, Name: "after a restart it makes instances", fresh: true, run: worksAfterRestart},
		{Group: group, Name: "after a restart old instances can be destroyed", fresh: true, run: destroysAfterRestart},
	}
}

// endCases come last: they end the process that all others have used.
func endCases() []Case {
	return []Case{{Group: "process", Name: "it ends in order after all other cases", run: endsAfterAll}}
}

// "Every method must return soon after its context ends." (Provider) A call that
// never does keeps the process from ending in order.
func endsAfterAll(c *scene) {
	c.suite.shared = nil
	c.stopInOrder(c.session)
}

// stopInOrder stops a process and fails if that does not work.
func (c *scene) stopInOrder(s *session) {
	s.stopped = true
	ctx, cancel := c.within(stopTimeout)
	defer cancel()
	c.must(s.plugin.Stop(ctx), "stop the provider")
	c.check(ctx.Err() == nil, "the provider did not end within %v", c.suite.within(stopTimeout))
}

// "Serve calls Close once, after the last call has returned, with a deadline of a
// few seconds." (Closer)
func endsInOrder(c *scene) { c.stopInOrder(c.newSession(newBrokerID(), newBrokerID())) }

// The same.
func endsWithInstance(c *scene) {
	s := c.newSession(newBrokerID(), newBrokerID())
	c.createOn(s, s.createRequest(""))
	c.stopInOrder(s)
}

// The same: calls that still run end then.
func endsWhileCodeRuns(c *scene) {
	c.someLanguage()
	s := c.newSession(newBrokerID(), newBrokerID())
	made := c.createOn(s, s.createRequest(c.language))
	e := c.beginOn(c.ctx, s, c.lasting(made.ID, c.samples.Wait))
	c.saying(e, "ready")
	c.stopInOrder(s)
	c.await(e, settleTimeout, "the provider ended")
}

// "The broker … never calls a method on a provider that refused its
// configuration": it ends without.
func endsUnconfigured(c *scene) { c.stopInOrder(c.launched()) }

// restarted makes an instance, ends the process, and starts another in its place.
func (c *scene) restarted(end func(*session)) (again *session, instance string) {
	c.someLanguage()
	brokerID, state := newBrokerID(), newBrokerID()
	first := c.newSession(brokerID, state)
	made := c.createOn(first, first.createRequest(c.language))
	end(first)
	again = c.newSession(brokerID, state)
	c.destroyLater(again, made.ID)
	return again, made.ID
}

// "The broker uses it after a crash to find what it lost." (Provider.List) What is
// listed is there, and what is there is listed.
func agreesAfterRestart(c *scene) {
	again, id := c.restarted(func(s *session) { c.stopInOrder(s) })
	c.agrees(again, id)
}

// The same: "It may hold what an earlier process left behind when it was killed."
// (ConfigureRequest.StateDir)
func agreesAfterKill(c *scene) {
	again, id := c.restarted(func(s *session) {
		if s.plugin.Kill == nil {
			c.skip("the provider cannot be killed here: it is not a process of its own")
		}
		s.plugin.Kill()
		s.stop(c.ctx)
	})
	c.agrees(again, id)
}

func (c *scene) agrees(s *session, id string) {
	_, listed := c.listed(s)[id]
	got := c.await(c.beginOn(c.ctx, s, c.request(id, c.code(c.samples.Hello))), callTimeout, "it began")
	if !listed {
		c.refused(got.err, "Execute in an instance that List lacks after the restart", sdk.CodeNotFound)
		return
	}
	c.must(got.err, "execute in an instance that List has after the restart")
	c.succeeded(got)
}

// "the same at each start" (ConfigureRequest.StateDir)
func worksAfterRestart(c *scene) {
	again, _ := c.restarted(func(s *session) { c.stopInOrder(s) })
	made := c.createOn(again, again.createRequest(c.language))
	got := c.await(c.beginOn(c.ctx, again, c.request(made.ID, c.code(c.samples.Hello))), callTimeout, "it began")
	c.must(got.err, "execute after a restart")
	c.succeeded(got)
}

// "Destroying an instance that does not exist is a success." (Provider.Destroy)
func destroysAfterRestart(c *scene) {
	again, id := c.restarted(func(s *session) { c.stopInOrder(s) })
	c.must(c.call("Destroy", func(ctx context.Context) error { return again.Destroy(ctx, id) }), "destroy an instance of the process before")
	_, listed := c.listed(again)[id]
	c.check(!listed, "List has the instance %s that was destroyed", id)
}
