package providertest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func lifecycleCases() []Case {
	const group = "lifecycle"
	return []Case{
		{Group: group, Name: "every template makes an instance", run: everyTemplate},
		{Group: group, Name: "a new instance can execute at once", run: executesAtOnce},
		{Group: group, Name: "no ID is the prefix of another", run: noPrefixes},
		{Group: group, Name: "a key names one creation", run: oneKeyOneInstance},
		{Group: group, Name: "a key names one creation among many at once", run: oneKeyAtOnce},
		{Group: group, Name: "other keys make other instances", run: otherKeys},
		{Group: group, Name: "a template that it does not offer is refused", run: refusesUnknownTemplate},
		{Group: group, Name: "an instance that was made is listed", run: listsWhatIsThere},
		{Group: group, Name: "an instance that was destroyed is not listed", run: doesNotListDestroyed},
		{Group: group, Name: "to destroy twice is a success", run: destroysTwice},
		{Group: group, Name: "to destroy what never was is a success", run: destroysUnknown},
		{Group: group, Name: "to destroy many times at once is a success", run: destroysAtOnce},
		{Group: group, Name: "a destroyed instance executes nothing", run: destroyedExecutesNothing},
		{Group: group, Name: "to destroy ends what executes", run: destroyEndsExecution},
		{Group: group, Name: "other instances go on after a destroy", run: othersGoOn},
		{Group: group, Name: "nothing is left when all was destroyed", fresh: true, run: nothingIsLeft},
	}
}

// "Template is one of Description.Templates." (CreateRequest)
func everyTemplate(c *scene) {
	for _, t := range c.Describe().Templates {
		req := c.createRequest("")
		req.Template = t.Name
		made := c.create(req)
		equal(c, made.Template, t.Name, "the template of the instance")
		c.destroy(made.ID)
	}
}

// "Create makes an instance and returns when it can execute code."
// (Provider.Create)
func executesAtOnce(c *scene) {
	c.someLanguage()
	for range 3 {
		c.instance().prints(c.samples.Hello, "hello\n")
	}
}

// "No ID may be a prefix of another: some back ends resolve unique prefixes."
// (Instance.ID)
func noPrefixes(c *scene) {
	var ids []string
	for range 5 {
		in := c.instance()
		for _, other := range ids {
			c.check(!strings.HasPrefix(in.ID, other) && !strings.HasPrefix(other, in.ID), "of the IDs %s and %s one is a prefix of the other", in.ID, other)
		}
		ids = append(ids, in.ID)
	}
}

// "a second Create with the same key returns the instance that the first one
// made." (CreateRequest.IdempotencyKey)
func oneKeyOneInstance(c *scene) {
	before := c.listed()
	req := c.createRequest("")
	first, second := c.create(req), c.create(req)
	equal(c, second.ID, first.ID, "the ID that the second Create with one key gave")
	equal(c, len(c.listed()), len(before)+1, "the number of instances")
}

// The same: the second may come before the first has ended.
func oneKeyAtOnce(c *scene) {
	const n = 4
	req := c.createRequest("")
	made := make([]sdk.Instance, n)
	errs := repeated(n, func(i int) (err error) {
		ctx, cancel := c.within(callTimeout)
		defer cancel()
		made[i], err = c.Create(ctx, req)
		return err
	})
	for i, err := range errs {
		if err == nil {
			c.destroyLater(made[i].ID)
		}
	}
	for i, err := range errs {
		c.must(err, "create with one key, %d at a time", n)
		equal(c, made[i].ID, made[0].ID, "the ID that another Create with the same key gave")
	}
}

// The same: the key is what tells creations apart.
func otherKeys(c *scene) {
	req := c.createRequest("")
	first := c.create(req)
	req.IdempotencyKey = randomWord()
	second := c.create(req)
	c.check(first.ID != second.ID, "two keys gave the instance %s both", first.ID)
}

// "Template is one of Description.Templates." (CreateRequest) Another must not
// pass for one of them. That nothing was made is a case of its own.
func refusesUnknownTemplate(c *scene) {
	req := c.createRequest("")
	req.Template = "no-such-template"
	_, err := c.tryCreate(req)
	c.refused(err, "Create with an unknown template", sdk.CodeInvalidRequest, sdk.CodeCreateFailed)
}

// "List returns every live instance that carries the broker ID given to
// Configure." (Provider.List)
func listsWhatIsThere(c *scene) {
	made := c.create(c.createRequest(""))
	_, ok := c.listed()[made.ID]
	c.check(ok, "List lacks the instance %s that was just made", made.ID)
}

// The same: "and no other".
func doesNotListDestroyed(c *scene) {
	made := c.create(c.createRequest(""))
	c.destroy(made.ID)
	_, ok := c.listed()[made.ID]
	c.check(!ok, "List has the instance %s that was destroyed", made.ID)
}

// "Destroying an instance that does not exist is a success." (Provider.Destroy)
func destroysTwice(c *scene) {
	made := c.create(c.createRequest(""))
	c.destroy(made.ID)
	c.destroy(made.ID)
}

// The same.
func destroysUnknown(c *scene) { c.destroy("unknown" + randomWord()) }

// The same, and "All other methods may be called concurrently, for the same
// instance too." (Provider)
func destroysAtOnce(c *scene) {
	made := c.create(c.createRequest(""))
	for _, err := range repeated(5, func(int) error {
		ctx, cancel := c.within(callTimeout)
		defer cancel()
		return c.Destroy(ctx, made.ID)
	}) {
		c.must(err, "destroy one instance, five at a time")
	}
	c.destroyed[made.ID] = true
	_, ok := c.listed()[made.ID]
	c.check(!ok, "List has the instance %s that was destroyed", made.ID)
}

// "Return CodeNotFound for an unknown instance." (Provider.Execute)
func destroyedExecutesNothing(c *scene) {
	in := c.instance()
	in.run(c.samples.Hello)
	c.destroy(in.ID)
	got := c.tried(in.request(c.samples.Hello))
	c.refused(got.err, "Execute in a destroyed instance", sdk.CodeNotFound)
	equal(c, got.stdout, "", "stdout of a destroyed instance")
}

// "Destroy ends an instance and frees all it holds, running executions included."
// (Provider.Destroy)
func destroyEndsExecution(c *scene) {
	in := c.instance()
	e := c.begin(c.ctx, in.lasting(c.samples.Wait))
	e.saying("ready")
	c.destroy(in.ID)
	got := e.await(settleTimeout/3, "the instance was destroyed")
	if got.err == nil && got.Status == sdk.StatusSucceeded {
		c.fail("code that was cut short by a destroy counts as succeeded")
	}
	if got.err != nil {
		c.check(sdk.CodeOf(got.err) != sdk.CodeInternal, "Execute in an instance that is destroyed gave %v; that is nobody's bug", got.err)
		c.admitsEffect(got.err)
	}
}

// "Once the code may have begun, an instance that is gone is CodeUnavailable, for no
// code may run twice." (Provider.Execute)
func (c *scene) admitsEffect(err error) {
	e, ok := errors.AsType[*sdk.Error](err)
	c.check(!ok || e.Code != sdk.CodeNotFound && !e.NoEffect, "Execute gave %v although the code ran; with CodeNotFound or NoEffect it might be run again elsewhere", err)
}

// The same: of one instance.
func othersGoOn(c *scene) {
	first, second := c.instance(), c.instance()
	e := c.begin(c.ctx, second.lasting(c.samples.Wait))
	e.saying("ready")
	c.destroy(first.ID)
	second.prints(c.samples.Hello, "hello\n")
	e.goesOn("the destroy of another instance")
}

// "frees all it holds" (Provider.Destroy)
func nothingIsLeft(c *scene) {
	s := c.newSession(newBrokerID(), newBrokerID())
	for range 3 {
		s.destroy(s.create(s.createRequest("")).ID)
	}
	left := s.listed()
	c.check(len(left) == 0, "List has %s after all was destroyed", fmt.Sprint(left))
}

func healthCases() []Case {
	const group = "health"
	return []Case{
		{Group: group, Name: "it is healthy with the settings of this run", fresh: true, run: isHealthy},
		{Group: group, Name: "a probe is answered in time", run: answersProbes},
		{Group: group, Name: "probes at the same time are answered", run: answersProbesTogether},
		{Group: group, Name: "probes are answered while code runs", run: answersProbesWhileCodeRuns},
		{Group: group, Name: "counters do not go back", run: countersGrow},
	}
}

func (c *scene) probe() sdk.Health {
	ctx, cancel := c.within(healthTimeout)
	defer cancel()
	health, err := c.Health(ctx)
	c.must(err, "Health")
	return health
}

// "Health says whether Create would work now." (Provider.Health)
func isHealthy(c *scene) { c.newSession(newBrokerID(), newBrokerID()) }

// "It is called every few seconds: keep it cheap." (Provider.Health) The broker
// gives a probe 5 seconds.
func answersProbes(c *scene) {
	for range 5 {
		c.probe()
	}
}

// "All other methods may be called concurrently." (Provider)
func answersProbesTogether(c *scene) {
	for _, err := range repeated(10, func(int) error {
		ctx, cancel := c.within(healthTimeout)
		defer cancel()
		_, err := c.Health(ctx)
		return err
	}) {
		c.must(err, "Health, ten at a time")
	}
}

// The same.
func answersProbesWhileCodeRuns(c *scene) {
	in := c.instance()
	e := c.begin(c.ctx, in.lasting(c.samples.Wait))
	e.saying("ready")
	health := c.probe()
	c.check(health.Healthy, "it is not healthy: %s", health.Reason)
}

// "only grows, from the start of the process" (MetricCounter)
func countersGrow(c *scene) {
	before := c.probe().Metrics
	in := c.instance()
	in.run(c.samples.Hello)
	after := c.probe().Metrics
	if len(before)+len(after) == 0 {
		c.skip("it has no metrics")
	}
	key := func(m sdk.Metric) string { return m.Name + shown(m.Labels) }
	values := map[string]float64{}
	for _, m := range before {
		if m.Kind == sdk.MetricCounter {
			values[key(m)] = m.Value
		}
	}
	for _, m := range after {
		if was, known := values[key(m)]; known {
			c.check(m.Value >= was, "the counter %s went from %v to %v", m.Name, was, m.Value)
		}
	}
}

func labelCases() []Case {
	const group = "labels"
	return []Case{
		{Group: group, Name: "an instance carries its labels", run: carriesLabels},
		{Group: group, Name: "List returns labels and template", run: listsLabels},
		{Group: group, Name: "every instance has labels of its own", run: ownLabels},
		{Group: group, Name: "labels of all letters come back unchanged", run: strangeLabels},
		{Group: group, Name: "long labels come back unchanged", run: longLabels},
		{Group: group, Name: "labels beyond the usual ones come back", run: furtherLabels},
		{Group: group, Name: "another broker's instances are not listed", fresh: true, run: listsNoOthers},
		{Group: group, Name: "another broker's instances survive", fresh: true, run: leavesOthersAlone},
	}
}

// "Labels to keep with the instance and to return from List." (CreateRequest)
func carriesLabels(c *scene) {
	req := c.createRequest("")
	equal(c, c.create(req).Labels, req.Labels, "the labels that Create returned")
}

// The same.
func listsLabels(c *scene) {
	req := c.createRequest("")
	made := c.create(req)
	found := c.listed()[made.ID]
	equal(c, found.Labels, req.Labels, "the labels that List returned")
	equal(c, found.Template, req.Template, "the template that List returned")
}

// The same.
func ownLabels(c *scene) {
	labels := map[string]map[string]string{}
	for range 3 {
		req := c.createRequest("")
		labels[c.create(req).ID] = req.Labels
	}
	list := c.listed()
	for id, want := range labels {
		equal(c, list[id].Labels, want, "the labels of %s among others", id)
	}
}

// "the tenant's own name for a piece of work": sessions are what agents call
// them.
func strangeLabels(c *scene) {
	for _, value := range []string{"Grüße, 世界 🎈", `quotes " ' and \ and $HOME and {}`, "a b,c=d;e:f/g", " leading and trailing "} {
		c.labelSurvives(value)
	}
}

// The same.
func longLabels(c *scene) { c.labelSurvives(strings.Repeat("0123456789abcdef", 16)) }

func (c *scene) labelSurvives(value string) {
	req := c.createRequest("")
	req.Labels[sdk.LabelSession] = value
	made := c.create(req)
	equal(c, c.listed()[made.ID].Labels, req.Labels, "the labels that List returned")
	c.destroy(made.ID)
}

// "at least LabelTenant, LabelSession and LabelInstance" (CreateRequest.Labels)
func furtherLabels(c *scene) {
	req := c.createRequest("")
	req.Labels["generation"] = "7"
	made := c.create(req)
	equal(c, c.listed()[made.ID].Labels, req.Labels, "the labels that List returned")
}

// "Mark every instance with it, so that two brokers on one account never touch
// each other's." (ConfigureRequest.BrokerID)
func listsNoOthers(c *scene) {
	one := c.newSession(newBrokerID(), newBrokerID())
	two := c.newSession(newBrokerID(), newBrokerID())
	made := one.create(one.createRequest(""))
	_, ok := two.listed()[made.ID]
	c.check(!ok, "List of another broker has the instance %s", made.ID)
	_, ok = one.listed()[made.ID]
	c.check(ok, "List lacks the instance %s", made.ID)
}

// The same: neither the start nor the end of one touches the other's.
func leavesOthersAlone(c *scene) {
	c.someLanguage()
	one := c.newSession(newBrokerID(), newBrokerID())
	made := one.create(one.createRequest(c.language))
	two := c.newSession(newBrokerID(), newBrokerID())
	two.create(two.createRequest(c.language))
	two.stop(c.ctx)
	e := one.begin(c.ctx, made.request(c.code(c.samples.Hello)))
	got := e.await(callTimeout, "it was asked to run")
	c.must(got.err, "execute after another broker came and went")
	got.succeeded()
}
