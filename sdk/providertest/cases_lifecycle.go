package providertest

import (
	"context"
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
		made := c.createWith(req)
		equal(c, made.Template, t.Name, "the template of the instance")
		c.destroy(made.ID)
	}
}

// "Create makes an instance and returns when it can execute code."
// (Provider.Create)
func executesAtOnce(c *scene) {
	c.someLanguage()
	for range 3 {
		c.prints(c.instance(), c.samples.Hello, "hello\n")
	}
}

// "No ID may be a prefix of another: some back ends resolve unique prefixes."
// (Instance.ID)
func noPrefixes(c *scene) {
	var ids []string
	for range 5 {
		id := c.instance()
		for _, other := range ids {
			c.check(!strings.HasPrefix(id, other) && !strings.HasPrefix(other, id), "of the IDs %s and %s one is a prefix of the other", id, other)
		}
		ids = append(ids, id)
	}
}

// "a second Create with the same key returns the instance that the first one
// made." (CreateRequest.IdempotencyKey)
func oneKeyOneInstance(c *scene) {
	before := c.listed(c.session)
	req := c.createRequest("")
	first, second := c.createWith(req), c.createWith(req)
	equal(c, second.ID, first.ID, "the ID that the second Create with one key gave")
	equal(c, len(c.listed(c.session)), len(before)+1, "the number of instances")
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
			c.destroyLater(c.session, made[i].ID)
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
	first := c.createWith(req)
	req.IdempotencyKey = randomWord()
	second := c.createWith(req)
	c.check(first.ID != second.ID, "two keys gave the instance %s both", first.ID)
}

// "Template is one of Description.Templates." (CreateRequest) Another must not
// pass for one of them. That nothing was made is a case of its own.
func refusesUnknownTemplate(c *scene) {
	req := c.createRequest("")
	req.Template = "no-such-template"
	var made sdk.Instance
	err := c.call("Create", func(ctx context.Context) (err error) {
		made, err = c.Create(ctx, req)
		return err
	})
	if err == nil {
		c.destroyLater(c.session, made.ID)
	}
	c.refused(err, "Create with an unknown template", sdk.CodeInvalidRequest, sdk.CodeCreateFailed)
}

// "List returns every live instance that carries the broker ID given to
// Configure." (Provider.List)
func listsWhatIsThere(c *scene) {
	made := c.createWith(c.createRequest(""))
	_, ok := c.listed(c.session)[made.ID]
	c.check(ok, "List lacks the instance %s that was just made", made.ID)
}

// The same: "and no other".
func doesNotListDestroyed(c *scene) {
	made := c.createWith(c.createRequest(""))
	c.destroy(made.ID)
	_, ok := c.listed(c.session)[made.ID]
	c.check(!ok, "List has the instance %s that was destroyed", made.ID)
}

// "Destroying an instance that does not exist is a success." (Provider.Destroy)
func destroysTwice(c *scene) {
	made := c.createWith(c.createRequest(""))
	c.destroy(made.ID)
	c.destroy(made.ID)
}

// The same.
func destroysUnknown(c *scene) { c.destroy("unknown" + randomWord()) }

// The same, and "All other methods may be called concurrently, for the same
// instance too." (Provider)
func destroysAtOnce(c *scene) {
	made := c.createWith(c.createRequest(""))
	for _, err := range repeated(5, func(int) error {
		ctx, cancel := c.within(callTimeout)
		defer cancel()
		return c.Destroy(ctx, made.ID)
	}) {
		c.must(err, "destroy one instance, five at a time")
	}
	c.destroyed[made.ID] = true
	_, ok := c.listed(c.session)[made.ID]
	c.check(!ok, "List has the instance %s that was destroyed", made.ID)
}

// "Return CodeNotFound for an unknown instance." (Provider.Execute)
func destroyedExecutesNothing(c *scene) {
	id := c.instance()
	c.run(id, c.samples.Hello)
	c.destroy(id)
	got := c.tried(c.request(id, c.samples.Hello))
	c.refused(got.err, "Execute in a destroyed instance", sdk.CodeNotFound)
	equal(c, got.stdout, "", "stdout of a destroyed instance")
}

// "Destroy ends an instance and frees all it holds, running executions included."
// (Provider.Destroy)
func destroyEndsExecution(c *scene) {
	id := c.instance()
	e := c.begin(c.ctx, c.lasting(id, c.samples.Wait))
	c.saying(e, "ready")
	c.destroy(id)
	got := c.await(e, settleTimeout/3, "the instance was destroyed")
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
	e := c.begin(c.ctx, c.lasting(second, c.samples.Wait))
	c.saying(e, "ready")
	c.destroy(first)
	c.prints(second, c.samples.Hello, "hello\n")
	c.goesOn(e, "the destroy of another instance")
}

// "frees all it holds" (Provider.Destroy)
func nothingIsLeft(c *scene) {
	s := c.newSession(newBrokerID(), newBrokerID())
	for range 3 {
		c.destroyOn(s, c.createOn(s, s.createRequest("")).ID)
	}
	left := c.listed(s)
	c.check(len(left) == 0, "List has %s after all was destroyed", fmt.Sprint(left))
}
