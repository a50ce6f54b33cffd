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
func (c *scene) timedOut(id, sample string) outcome { return c.timedOutAfter(id, sample, time.Second) }

func (c *scene) timedOutAfter(id, sample string, timeout time.Duration) outcome {
	req := c.request(id, c.code(sample))
	req.Timeout = c.suite.within(timeout)
	e := c.begin(c.ctx, req)
	got := c.await(e, timeout+callTimeout, "it began, although its code had "+timeout.String())
	c.must(got.err, "execute")
	equal(c, got.Status, sdk.StatusTimeout, "the status of code that runs into its timeout")
	c.check(got.ExitCode != 0, "the exit code of code that was stopped is 0")
	return got
}

// timedOutReady is timedOut for code that prints "ready" when it is where it should be
// stopped. An interpreter that is slow to start gets more time.
func (c *scene) timedOutReady(id, sample string) {
	var got outcome
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second, 16 * time.Second} {
		if got = c.timedOutAfter(id, sample, timeout); got.stdout != "" {
			break
		}
	}
	equal(c, got.stdout, "ready\n", "stdout")
}

// "A timeout kills every process of that execution, gives StatusTimeout with the
// output so far, and leaves the instance usable." (package sdk)
func timeoutKeepsOutput(c *scene) {
	id := c.instance()
	c.timedOutReady(id, c.samples.Wait)
	c.prints(id, c.samples.Hello, "hello\n")
}

// The same.
func timeoutOf(sample func(Samples) string) func(*scene) {
	return func(c *scene) {
		id := c.instance()
		c.timedOut(id, sample(c.samples))
		c.prints(id, c.samples.Hello, "hello\n")
	}
}

// The same: every process.
func timeoutEndsChildren(c *scene) {
	id := c.instance()
	c.timedOutReady(id, c.samples.TickAndWait)
	c.ticksNoMore(id, "the timeout")
}

// "Timeout is the wall-clock limit of the code." (ExecuteRequest)
func noTimeout(c *scene) {
	req := c.request(c.instance(), c.code(c.samples.Hello))
	req.Timeout = 24 * time.Hour
	c.succeeded(c.execute(req))
}

// "Execute … returns when it and all processes it started have ended."
// (Provider.Execute)
func endEndsChildren(c *scene) {
	id := c.instance()
	req := c.request(id, c.code(c.samples.Tick))
	req.Timeout = c.suite.within(5 * time.Second) // it may also wait for them
	c.execute(req)
	c.ticksNoMore(id, "Execute returned")
}

// "When ctx ends, stop the execution and its whole process tree; the instance
// stays usable." (Provider.Execute) Within a second, by the clock of the
// instance: what Now says was asked for after the cancellation.
func cancelStops(sample func(Samples) string) func(*scene) {
	return func(c *scene) {
		id := c.instance()
		e := c.begin(c.ctx, c.lasting(id, sample(c.samples)))
		c.saying(e, "ready")
		e.cancel()
		now := c.now(id)
		<-e.done
		c.stopsTicking(id, now, obeyTimeout, "it was cancelled")
	}
}

// "Every method must return soon after its context ends." (Provider) It is the
// provider's own return that counts, which only a provider in this process shows.
func cancelReturns(c *scene) {
	if c.plugin.Late == nil {
		c.skip("when a call of another process returns cannot be seen")
	}
	before := len(c.plugin.Late())
	e := c.begin(c.ctx, c.lasting(c.instance(), c.samples.Wait))
	c.saying(e, "ready")
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
	id := c.instance()
	e := c.begin(c.ctx, c.lasting(id, c.samples.Stubborn))
	c.saying(e, "ready")
	e.cancel()
	<-e.done
	c.prints(id, c.samples.Hello, "hello\n")
}

// The same for a deadline.
func deadlineStops(c *scene) {
	id := c.instance()
	ctx, cancel := c.within(2 * time.Second)
	defer cancel()
	e := c.begin(ctx, c.lasting(id, c.samples.TickAndWait))
	got := c.await(e, callTimeout, "it began, although its call had two seconds")
	c.check(isContextEnd(got.err), "an Execute whose deadline is over gave %v", got.err)
	c.stopsTicking(id, c.now(id), obeyTimeout, "its deadline was over")
}

// "stop the execution": this one.
func cancelDisturbsNoOther(c *scene) {
	id := c.instance()
	one := c.begin(c.ctx, c.lasting(id, c.samples.TickAndWait))
	other := c.begin(c.ctx, c.lasting(id, c.samples.Wait))
	c.saying(one, "ready")
	c.saying(other, "ready")
	one.cancel()
	<-one.done
	c.lastTick(id, "it was cancelled") // when it has had its effect
	c.goesOn(other, "the cancellation of another execution")
}

// goesOn checks that nothing ends an execution. What ends it may need a moment: for
// one that shall not, that is waited out.
func (c *scene) goesOn(e *execution, after string) {
	moment := time.NewTimer(2 * silence)
	defer moment.Stop()
	select {
	case <-e.done:
		got := e.outcome()
		c.fail("%s ended an execution: %s, %v", after, got.Status, got.err)
	case <-moment.C:
	}
}

// "the instance stays usable" (Provider.Execute)
func goesOnAfterCancel(c *scene) {
	id := c.instance()
	c.succeeded(c.run(id, c.samples.Write))
	for range 3 {
		e := c.begin(c.ctx, c.lasting(id, c.samples.TickAndWait))
		c.saying(e, "ready")
		e.cancel()
		<-e.done
	}
	c.lastTick(id, "it was cancelled") // when it has had its effect
	c.prints(id, c.samples.Read, "kept")
}

// now is the instance's clock, in milliseconds.
func (c *scene) now(id string) int64 {
	got := c.run(id, c.samples.Now)
	c.succeeded(got)
	var now int64
	_, err := fmt.Sscan(got.stdout, &now)
	c.must(err, "read the clock from %q", got.stdout)
	return now
}

// ticks returns the instance's clock and the time of the last tick.
func (c *scene) ticks(id string) (now, last int64) {
	got := c.run(id, c.samples.LastTick)
	c.succeeded(got)
	_, err := fmt.Sscan(got.stdout, &now, &last)
	c.must(err, "read the last tick from %q", got.stdout)
	return now, last
}

// silence is how long a process that ticks every 50 ms must be silent to count as
// ended. Patience does not stretch it: where a machine is so slow that it is too
// short, something that lives may pass for ended, and never the reverse.
const silence = time.Second

// lastTick waits until the process has been silent, and says when it ticked last.
// Whether it ever is silent is the question.
func (c *scene) lastTick(id, after string) int64 {
	var last int64
	err := c.suite.eventually(c.ctx, settleTimeout/2, func(context.Context) error {
		var now int64
		if now, last = c.ticks(id); now-last < silence.Milliseconds() {
			return errors.New("a process that the code started still runs")
		}
		return nil
	})
	c.must(err, "after %s", after)
	return last
}

// stopsTicking checks that the process ticked no longer than limit after a moment
// of the instance's clock.
func (c *scene) stopsTicking(id string, moment int64, limit time.Duration, after string) {
	late := time.Duration(c.lastTick(id, after)-moment) * time.Millisecond
	if limit = c.suite.within(limit); late > limit {
		c.fail("a process that the code started ran for %v after %s; it may for %v", late, after, limit)
	}
}

// ticksNoMore checks that the process has ended by now.
func (c *scene) ticksNoMore(id, after string) {
	now := c.now(id)
	if last := c.lastTick(id, after); last > now {
		c.fail("a process that the code started ran for %v after %s", time.Duration(last-now)*time.Millisecond, after)
	}
}
