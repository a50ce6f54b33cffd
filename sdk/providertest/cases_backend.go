package providertest

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func backendCases() []Case {
	const group = "backend"
	return []Case{
		{Group: group, Name: "it is not healthy without its back end, and says why", fresh: true, run: unhealthyWithoutBackend},
		{Group: group, Name: "Create without its back end is refused in time", fresh: true, run: createWithoutBackend},
		{Group: group, Name: "Execute without its back end ends in time", fresh: true, run: executeWithoutBackend},
		{Group: group, Name: "Destroy and List without its back end end in time", fresh: true, run: destroyWithoutBackend},
		{Group: group, Name: "it is healthy again when its back end is back", fresh: true, run: healthyAgain},
		{Group: group, Name: "without its back end it refuses its configuration in time", fresh: true, run: configureWithoutBackend},
	}
}

// breaks takes the back end away until the end of the case, or until repair is
// called.
func (c *scene) breaks() (repair func()) {
	mend, err := c.suite.breakage(c.ctx)
	c.must(err, "take the back end away")
	broken := true
	repair = func() {
		if !broken {
			return
		}
		broken = false
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.suite.within(callTimeout))
		defer cancel()
		if err := mend(ctx); err != nil {
			c.note("bring the back end back: %v", err)
		}
	}
	c.later(repair)
	return repair
}

// withBackend starts a process of its own, so that what breaks is nobody else's.
func (c *scene) withBackend() (*scene, instance) {
	if c.suite.breakage == nil {
		c.skip("nobody said how to take the back end away")
	}
	c.someLanguage()
	s := c.newSession(newBrokerID(), newBrokerID())
	return s, s.instance()
}

// "A nil error with Healthy false and a Reason is the normal way to say no."
// (Provider.Health)
func unhealthyWithoutBackend(c *scene) {
	s, _ := c.withBackend()
	c.breaks()
	c.eventually("the provider notices", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.suite.within(healthTimeout))
		defer cancel()
		health, err := s.Health(ctx)
		c.check(!errors.Is(err, wire.ErrPluginGone), "the process ended with its back end")
		switch {
		case isContextEnd(err):
			return errors.New("a probe is not answered")
		case err == nil && health.Healthy:
			return errors.New("it says that it is healthy")
		}
		c.check(err != nil || health.Reason != "", "it is not healthy and does not say why")
		return nil
	})
}

// "Return CodeCreateFailed when none can be made, CodeUnavailable when the back
// end is gone." (Provider.Create)
func createWithoutBackend(c *scene) {
	s, _ := c.withBackend()
	c.breaks()
	_, err := s.tryCreate(s.createRequest(c.language))
	c.refused(err, "Create without a back end", sdk.CodeCreateFailed, sdk.CodeUnavailable, sdk.CodeConnectionFailed)
}

// "A method that fails should return an *Error." (Provider)
func executeWithoutBackend(c *scene) {
	s, made := c.withBackend()
	c.breaks()
	got := s.begin(c.ctx, made.request(c.code(c.samples.Hello))).await(callTimeout, "its back end had gone")
	if got.err != nil {
		c.refused(got.err, "Execute without a back end", sdk.CodeNotFound, sdk.CodeUnavailable, sdk.CodeConnectionFailed)
	}
}

// The same.
func destroyWithoutBackend(c *scene) {
	s, made := c.withBackend()
	c.breaks()
	for what, call := range map[string]func(context.Context) error{
		"Destroy": func(ctx context.Context) error { return s.Destroy(ctx, made.ID) },
		"List":    func(ctx context.Context) error { _, err := s.List(ctx); return err },
	} {
		if err := c.call(what, call); err != nil {
			c.refused(err, what+" without a back end", sdk.CodeUnavailable, sdk.CodeConnectionFailed)
		}
	}
}

// "Health says whether Create would work now." (Provider.Health)
func healthyAgain(c *scene) {
	s, _ := c.withBackend()
	repair := c.breaks()
	s.probeOnce()
	repair()
	c.must(s.awaitHealth(c.ctx), "after the back end came back")
	made := s.instance()
	c.check(made.ID != "", "the instance has no ID")
}

// probeOnce asks, whatever the answer is.
func (c *scene) probeOnce() {
	ctx, cancel := c.within(healthTimeout)
	defer cancel()
	_, _ = c.Health(ctx)
}

// "CodeConnectionFailed when the back end cannot be reached" (Provider.Configure)
func configureWithoutBackend(c *scene) {
	if c.suite.breakage == nil {
		c.skip("nobody said how to take the back end away")
	}
	s := c.launched()
	settings, err := c.suite.resolve(s.Describe().Schema)
	c.must(err, "resolve")
	c.breaks()
	err = s.configure(c.ctx, settings)
	if err == nil {
		health, err := s.Health(c.ctx)
		c.check(err != nil || !health.Healthy, "it took its configuration and is healthy without a back end")
		return
	}
	c.refused(err, "Configure without a back end", sdk.CodeConnectionFailed, sdk.CodeUnavailable, sdk.CodeInvalidConfig)
}
