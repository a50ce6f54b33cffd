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

// "Either way Execute returns StatusCancelled, with the exit code as it ended and
// the output so far." (Interrupter)
func interruptCancels(c *scene) {
	e := c.instance().running(c.samples.Wait)
	e.interrupt()
	got := e.cancelled()
	c.check(got.ExitCode != 0, "the exit code of interrupted code is 0")
}

// "Code that still runs InterruptGrace later is killed with its whole process
// tree." (Interrupter)
func interruptKills(c *scene) {
	e := c.instance().running(c.samples.Stubborn)
	e.interrupt()
	e.cancelled()
}

// "A second Interrupt of the same execution does nothing." (Interrupter)
func interruptTwice(c *scene) {
	e := c.instance().running(c.samples.Stubborn)
	e.interrupt()
	err := c.Interrupt(c.ctx, e.request.InstanceID, e.request.ExecutionID)
	if err != nil { // it may have ended by now
		c.refused(err, "the second Interrupt", sdk.CodeNotFound)
	}
	e.cancelled()
}

// "killed with its whole process tree" (Interrupter)
func interruptEndsChildren(c *scene) {
	in := c.instance().ticking()
	e := in.running(c.samples.TickAndWait)
	e.interrupt()
	e.cancelled()
	in.hasEnded("the interrupted execution had ended")
}

// "ExecutionID names this execution among those that run in the instance."
// (ExecuteRequest)
func interruptOne(c *scene) {
	in := c.instance()
	one, other := in.running(c.samples.Wait), in.running(c.samples.Wait)
	one.interrupt()
	one.cancelled()
	in.prints(c.samples.Hello, "hello\n")
	other.goesOn("the interrupt of another execution")
}

// "the instance stays usable" (Provider.Execute)
func goesOnAfterInterrupt(c *scene) {
	in := c.instance()
	e := in.running(c.samples.Wait)
	e.interrupt()
	e.cancelled()
	in.prints(c.samples.Hello, "hello\n")
}

// "Return CodeNotFound for an execution that is not running." (Interrupter)
func interruptUnknown(c *scene) {
	in := c.instance()
	err := c.call("Interrupt", func(ctx context.Context) error { return c.Interrupt(ctx, in.ID, randomWord()) })
	c.refused(err, "Interrupt of an unknown execution", sdk.CodeNotFound)
}

// The same.
func interruptEnded(c *scene) {
	req := c.instance().request(c.code(c.samples.Hello))
	c.execute(req).succeeded()
	err := c.call("Interrupt", func(ctx context.Context) error { return c.Interrupt(ctx, req.InstanceID, req.ExecutionID) })
	c.refused(err, "Interrupt of an execution that has ended", sdk.CodeNotFound)
}
