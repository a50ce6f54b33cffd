package providertest

import (
	"context"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func concurrencyCases() []Case {
	const group = "concurrency"
	return []Case{
		{Group: group, Name: "executions in one instance do not mix", run: executionsDoNotMix},
		{Group: group, Name: "executions in one instance run side by side", run: executionsSideBySide},
		{Group: group, Name: "instances execute side by side", run: instancesSideBySide},
		{Group: group, Name: "instances are made and destroyed side by side", run: createsSideBySide},
		{Group: group, Name: "List works while instances come and go", run: listsMeanwhile},
		{Group: group, Name: "the same execution ID in two instances is two executions", run: sameExecutionID},
	}
}

// "All other methods may be called concurrently, for the same instance too."
// (Provider)
func executionsDoNotMix(c *scene) {
	const n = 6
	in := c.instance()
	running := make([]*execution, n)
	for i := range running {
		req := in.request(c.code(c.samples.Value))
		req.Env = map[string]string{"PROVIDERTEST": fmt.Sprint("value ", i)}
		running[i] = c.begin(c.ctx, req)
	}
	for i, e := range running {
		got := e.await(callTimeout, "it began")
		c.must(got.err, "execute, %d at a time", n)
		got.succeeded()
		equal(c, got.stdout, fmt.Sprint("value ", i), "the output of one execution among others")
	}
}

// The same: one that runs for long holds up no other.
func executionsSideBySide(c *scene) {
	in := c.instance()
	for range 3 {
		c.begin(c.ctx, in.lasting(c.samples.Wait)).saying("ready")
	}
	in.prints(c.samples.Hello, "hello\n")
}

// The same.
func instancesSideBySide(c *scene) {
	const n = 3
	var running []*execution
	for range n {
		e := c.begin(c.ctx, c.instance().lasting(c.samples.Wait))
		running = append(running, e)
	}
	for _, e := range running {
		e.saying("ready")
	}
}

// The same.
func createsSideBySide(c *scene) {
	const n = 4
	made := make([]sdk.Instance, n)
	errs := repeated(n, func(i int) (err error) {
		ctx, cancel := c.within(callTimeout)
		defer cancel()
		made[i], err = c.Create(ctx, c.createRequest(""))
		return err
	})
	for i, err := range errs {
		if err == nil {
			c.destroyLater(made[i].ID)
		}
	}
	seen := map[string]bool{}
	for i, err := range errs {
		c.must(err, "create, %d at a time", n)
		c.check(!seen[made[i].ID], "two instances have the ID %s", made[i].ID)
		seen[made[i].ID] = true
	}
	for _, err := range repeated(n, func(i int) error {
		ctx, cancel := c.within(callTimeout)
		defer cancel()
		return c.Destroy(ctx, made[i].ID)
	}) {
		c.must(err, "destroy, %d at a time", n)
	}
}

// The same.
func listsMeanwhile(c *scene) {
	stays := c.create(c.createRequest(""))
	listing := func() error {
		ctx, cancel := c.within(callTimeout)
		defer cancel()
		for range 20 {
			list, err := c.List(ctx)
			if err != nil {
				return err
			}
			found := false
			for _, i := range list {
				found = found || i.ID == stays.ID
			}
			if !found {
				return fmt.Errorf("the instance %s is not listed, which is there all the time", stays.ID)
			}
		}
		return nil
	}
	changing := func() error {
		ctx, cancel := c.within(callTimeout)
		defer cancel()
		for range 3 {
			made, err := c.Create(ctx, c.createRequest(""))
			if err != nil {
				return err
			}
			if err := c.Destroy(context.WithoutCancel(ctx), made.ID); err != nil {
				return err
			}
		}
		return nil
	}
	for _, err := range together(listing, changing, listing) {
		c.must(err, "list while instances come and go")
	}
}

// "ExecutionID names this execution among those that run in the instance."
// (ExecuteRequest)
func sameExecutionID(c *scene) {
	first, second := c.instance(), c.instance()
	one, two := first.lasting(c.samples.Wait), second.lasting(c.samples.TickAndWait)
	two.ExecutionID = one.ExecutionID
	e := c.begin(c.ctx, one)
	e.saying("ready")
	other := c.begin(c.ctx, two)
	other.saying("ready")
	other.cancel()
	<-other.done
	second.ticking().lastTick("it was cancelled") // when it has had its effect
	e.goesOn("the end of one with the same ID in another instance")
}
