package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func deadlineCases() []Case {
	const group = "deadlines"
	return []Case{
		{Group: group, Name: "code is stopped at its timeout, with its output so far", run: timeoutKeepsOutput},
		{Group: group, Name: "code that ignores signals is stopped at its timeout", run: timeoutOf(func(s Samples) string { return s.Stubborn })},
		{Group: group, Name: "code that uses the CPU is stopped at its timeout", run: timeoutOf(func(s Samples) string { return s.Spin })},
		{Group: group, Name: "a timeout ends what the code has started", run: timeoutEndsChildren},
		{Group: group, Name: "code that ends in time is not stopped", run: noTimeout},
		{Group: group, Name: "the end of the code ends what it has started", run: endEndsChildren},
		{Group: group, Name: "cancelled code stops within a second", run: cancelStops(func(s Samples) string { return s.TickAndWait })},
		{Group: group, Name: "cancelled code stops with processes of other sessions", run: cancelStops(func(s Samples) string { return s.EscapeAndWait })},
		{Group: group, Name: "a cancelled call returns within a second", run: cancelReturns},
		{Group: group, Name: "code that ignores signals is cancelled", run: cancelStubborn},
		{Group: group, Name: "the deadline of a call stops the code", run: deadlineStops},
		{Group: group, Name: "a cancelled execution disturbs no other", run: cancelDisturbsNoOther},
		{Group: group, Name: "the instance goes on after a cancelled execution", run: goesOnAfterCancel},
	}
}

// timedOut runs code with a timeout of a second.
func (in instance) timedOut(sample string) outcome { return in.timedOutAfter(sample, time.Second) }

func (in instance) timedOutAfter(sample string, timeout time.Duration) outcome {
	req := in.request(in.code(sample))
	req.Timeout = in.suite.within(timeout)
	e := in.begin(in.ctx, req)
	got := e.await(timeout+callTimeout, "it began, although its code had "+timeout.String())
	in.must(got.err, "execute")
	equal(in, got.Status, sdk.StatusTimeout, "the status of code that runs into its timeout")
	in.check(got.ExitCode != 0, "the exit code of code that was stopped is 0")
	return got
}

// timedOutReady is timedOut for code that prints "ready" when it is where it should be
// stopped. An interpreter that is slow to start gets more time.
func (in instance) timedOutReady(sample string) {
	var got outcome
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 16 * time.Second} {
		if got = in.timedOutAfter(sample, timeout); got.stdout != "" {
			break
		}
	}
	equal(in, got.stdout, "ready\n", "stdout")
}

// "A timeout kills every process of that execution, gives StatusTimeout with the
// output so far, and leaves the instance usable." (package sdk)
func timeoutKeepsOutput(c *scene) {
	in := c.instance()
	in.timedOutReady(c.samples.Wait)
	in.prints(c.samples.Hello, "hello\n")
}

// The same.
func timeoutOf(sample func(Samples) string) func(*scene) {
	return func(c *scene) {
		in := c.instance()
		in.timedOut(sample(c.samples))
		in.prints(c.samples.Hello, "hello\n")
	}
}

// The same: every process.
func timeoutEndsChildren(c *scene) {
	in := c.instance().ticking()
	in.timedOutReady(c.samples.TickAndWait)
	in.hasEnded("the timeout")
}

// "Timeout is the wall-clock limit of the code." (ExecuteRequest)
func noTimeout(c *scene) {
	req := c.instance().request(c.code(c.samples.Hello))
	req.Timeout = 24 * time.Hour
	c.execute(req).succeeded()
}

// "Execute … returns when it and all processes it started have ended."
// (Provider.Execute)
func endEndsChildren(c *scene) {
	in := c.instance().ticking()
	req := in.request(c.code(c.samples.Tick))
	req.Timeout = c.suite.within(5 * time.Second) // it may also wait for them
	c.execute(req)
	in.hasEnded("Execute returned")
}

// "When ctx ends, stop the execution and its whole process tree; the instance
// stays usable." (Provider.Execute) Within a second, by the clock of the
// instance: what Now says was asked for after the cancellation.
func cancelStops(sample func(Samples) string) func(*scene) {
	return func(c *scene) {
		in := c.instance().ticking()
		e := c.begin(c.ctx, in.lasting(sample(c.samples)))
		e.saying("ready")
		e.cancel()
		now := in.now()
		<-e.done
		in.stops(now, obeyTimeout, "it was cancelled")
	}
}

// "Every method must return soon after its context ends." (Provider) It is the
// provider's own return that counts, which only a provider in this process shows.
func cancelReturns(c *scene) {
	if c.plugin.Late == nil {
		c.skip("when a call of another process returns cannot be seen")
	}
	before := len(c.plugin.Late())
	e := c.begin(c.ctx, c.instance().lasting(c.samples.Wait))
	e.saying("ready")
	e.cancel()
	<-e.done
	c.check(isContextEnd(e.err), "a cancelled Execute gave %v", e.err)
	c.eventually("a cancelled Execute returns", func(context.Context) error {
		for _, call := range c.plugin.Late()[before:] {
			if !strings.HasSuffix(call.Method, "/Execute") {
				continue
			}
			if limit := c.suite.within(obeyTimeout); call.By > limit {
				c.fail("Execute returned %v after its context had ended; it may take %v", call.By, limit)
			}
			return nil
		}
		return errors.New("it has not")
	})
}

// The same, whatever the code does about signals.
func cancelStubborn(c *scene) {
	in := c.instance()
	e := c.begin(c.ctx, in.lasting(c.samples.Stubborn))
	e.saying("ready")
	e.cancel()
	<-e.done
	in.prints(c.samples.Hello, "hello\n")
}

// The same for a deadline.
func deadlineStops(c *scene) {
	in := c.instance().ticking()
	ctx, cancel := c.within(2 * time.Second)
	defer cancel()
	e := c.begin(ctx, in.lasting(c.samples.TickAndWait))
	got := e.await(callTimeout, "it began, although its call had two seconds")
	c.check(isContextEnd(got.err), "an Execute whose deadline is over gave %v", got.err)
	in.stops(in.now(), obeyTimeout, "its deadline was over")
}

// "stop the execution": this one.
func cancelDisturbsNoOther(c *scene) {
	in := c.instance().ticking()
	one := c.begin(c.ctx, in.lasting(c.samples.TickAndWait))
	other := c.begin(c.ctx, in.lasting(c.samples.Wait))
	one.saying("ready")
	other.saying("ready")
	one.cancel()
	<-one.done
	in.lastTick("it was cancelled") // when it has had its effect
	other.goesOn("the cancellation of another execution")
}

// "the instance stays usable" (Provider.Execute)
func goesOnAfterCancel(c *scene) {
	in := c.instance().ticking()
	in.run(c.samples.Write).succeeded()
	for range 3 {
		e := c.begin(c.ctx, in.lasting(c.samples.TickAndWait))
		e.saying("ready")
		e.cancel()
		<-e.done
	}
	in.lastTick("it was cancelled") // when it has had its effect
	in.prints(c.samples.Read, "kept")
}

// ticking is an instance in which a process ticks that code has started: it writes the
// time into a file, every 50 ms.
type ticking struct{ instance }

func (in instance) ticking() ticking { return ticking{in} }

// now is the instance's clock, in milliseconds.
func (in ticking) now() int64 {
	got := in.run(in.samples.Now)
	got.succeeded()
	var now int64
	_, err := fmt.Sscan(got.stdout, &now)
	in.must(err, "read the clock from %q", got.stdout)
	return now
}

// clocks returns the instance's clock and the time of the last tick.
func (in ticking) clocks() (now, last int64) {
	got := in.run(in.samples.LastTick)
	got.succeeded()
	_, err := fmt.Sscan(got.stdout, &now, &last)
	in.must(err, "read the last tick from %q", got.stdout)
	return now, last
}

// silence is how long a process that ticks every 50 ms must be silent to count as
// ended. Patience does not stretch it: where a machine is so slow that it is too
// short, something that lives may pass for ended, and never the reverse.
const silence = time.Second

// lastTick waits until the process has been silent, and says when it ticked last.
// Whether it ever is silent is the question.
func (in ticking) lastTick(after string) int64 {
	var last int64
	err := in.suite.eventually(in.ctx, settleTimeout/2, func(context.Context) error {
		var now int64
		if now, last = in.clocks(); now-last < silence.Milliseconds() {
			return errors.New("a process that the code started still runs")
		}
		return nil
	})
	in.must(err, "after %s", after)
	return last
}

// stops checks that the process ticked no longer than limit after a moment
// of the instance's clock.
func (in ticking) stops(moment int64, limit time.Duration, after string) {
	late := time.Duration(in.lastTick(after)-moment) * time.Millisecond
	if limit = in.suite.within(limit); late > limit {
		in.fail("a process that the code started ran for %v after %s; it may for %v", late, after, limit)
	}
}

// hasEnded checks that the process has ended by now.
func (in ticking) hasEnded(after string) {
	now := in.now()
	if last := in.lastTick(after); last > now {
		in.fail("a process that the code started ran for %v after %s", time.Duration(last-now)*time.Millisecond, after)
	}
}

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
