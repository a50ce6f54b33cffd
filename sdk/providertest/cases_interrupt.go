package providertest

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func interruptCases() []Case {
	const group = "interrupt"
	return needing([]Case{
		{Group: group, Name: "interrupted code ends as cancelled, with its output so far", run: interruptCancels},
		{Group: group, Name: "code that ignores the interrupt is killed", run: interruptKills},
		{Group: group, Name: "a second interrupt changes nothing", run: interruptTwice},
		{Group: group, Name: "an interrupt ends what the code has started", run: interruptEndsChildren},
		{Group: group, Name: "an interrupt is for one execution", run: interruptOne},
		{Group: group, Name: "the instance goes on after an interrupt", run: goesOnAfterInterrupt},
		{Group: group, Name: "an execution that does not run is not found", run: interruptUnknown},
		{Group: group, Name: "an execution that has ended is not found", run: interruptEnded},
	}, sdk.CapabilityInterrupt)
}

func (c *scene) interrupt(e *execution) {
	c.must(c.call("Interrupt", func(ctx context.Context) error {
		return c.Interrupt(ctx, e.request.InstanceID, e.request.ExecutionID)
	}), "interrupt")
}

// running starts code that waits and returns when it does.
func (c *scene) running(id, sample string) *execution {
	e := c.begin(c.ctx, c.lasting(id, sample))
	c.saying(e, "ready")
	return e
}

// cancelled waits for the end of interrupted code.
func (c *scene) cancelled(e *execution) outcome {
	got := c.await(e, settleTimeout, "it was interrupted")
	c.must(got.err, "an execution that was interrupted")
	equal(c, got.Status, sdk.StatusCancelled, "the status of interrupted code")
	equal(c, got.stdout, "ready\n", "the output so far")
	return got
}

// "Either way Execute returns StatusCancelled, with the exit code as it ended and
// the output so far." (Interrupter)
func interruptCancels(c *scene) {
	e := c.running(c.instance(), c.samples.Wait)
	c.interrupt(e)
	got := c.cancelled(e)
	c.check(got.ExitCode != 0, "the exit code of interrupted code is 0")
}

// "Code that still runs InterruptGrace later is killed with its whole process
// tree." (Interrupter)
func interruptKills(c *scene) {
	e := c.running(c.instance(), c.samples.Stubborn)
	c.interrupt(e)
	c.cancelled(e)
}

// "A second Interrupt of the same execution does nothing." (Interrupter)
func interruptTwice(c *scene) {
	e := c.running(c.instance(), c.samples.Stubborn)
	c.interrupt(e)
	err := c.Interrupt(c.ctx, e.request.InstanceID, e.request.ExecutionID)
	if err != nil { // it may have ended by now
		c.refused(err, "the second Interrupt", sdk.CodeNotFound)
	}
	c.cancelled(e)
}

// "killed with its whole process tree" (Interrupter)
func interruptEndsChildren(c *scene) {
	id := c.instance()
	e := c.running(id, c.samples.TickAndWait)
	c.interrupt(e)
	c.cancelled(e)
	c.ticksNoMore(id, "the interrupted execution had ended")
}

// "ExecutionID names this execution among those that run in the instance."
// (ExecuteRequest)
func interruptOne(c *scene) {
	id := c.instance()
	one, other := c.running(id, c.samples.Wait), c.running(id, c.samples.Wait)
	c.interrupt(one)
	c.cancelled(one)
	c.prints(id, c.samples.Hello, "hello\n")
	c.goesOn(other, "the interrupt of another execution")
}

// "the instance stays usable" (Provider.Execute)
func goesOnAfterInterrupt(c *scene) {
	id := c.instance()
	e := c.running(id, c.samples.Wait)
	c.interrupt(e)
	c.cancelled(e)
	c.prints(id, c.samples.Hello, "hello\n")
}

// "Return CodeNotFound for an execution that is not running." (Interrupter)
func interruptUnknown(c *scene) {
	id := c.instance()
	err := c.call("Interrupt", func(ctx context.Context) error { return c.Interrupt(ctx, id, randomWord()) })
	c.refused(err, "Interrupt of an unknown execution", sdk.CodeNotFound)
}

// The same.
func interruptEnded(c *scene) {
	req := c.request(c.instance(), c.code(c.samples.Hello))
	c.succeeded(c.execute(req))
	err := c.call("Interrupt", func(ctx context.Context) error { return c.Interrupt(ctx, req.InstanceID, req.ExecutionID) })
	c.refused(err, "Interrupt of an execution that has ended", sdk.CodeNotFound)
}
