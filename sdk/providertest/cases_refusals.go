package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func refusalCases() []Case {
	const group = "refusals"
	return []Case{
		{Group: group, Name: "a Create that is refused has made nothing", fresh: true, run: refusedMakesNothing},
		{Group: group, Name: "a Create that is refused without the back end has made nothing", fresh: true, run: refusedWithoutBackendMakesNothing},
	}
}

// lateness is how long an instance may take to turn up that a creation has made
// although it said that it has made nothing. Patience does not stretch it: what turns
// up later than that passes for nothing, and never the reverse.
const lateness = time.Second

// denials are creations of which their errors say that they have made nothing.
type denials struct {
	*scene // of the process
	// of says what was tried, by the instance's label.
	of map[string]string
	// made are the instances that are there rightly, and open those labels of which
	// nothing is known.
	made, open map[string]bool
}

// denied begins to collect denials of the process, which is the case's own: nothing is
// listed there but what the case has made.
func (c *scene) denied() *denials {
	d := &denials{scene: c, of: map[string]string{}, made: map[string]bool{}, open: map[string]bool{}}
	c.later(d.destroyAll)
	return d
}

// try makes an instance or sees how that is refused.
func (d *denials) try(what string, req sdk.CreateRequest) {
	ctx, cancel := d.within(callTimeout)
	defer cancel()
	made, err := d.Create(ctx, req)
	switch {
	case err == nil:
		d.made[made.ID] = true
	case ctx.Err() == nil && saysNothingWasMade(err):
		d.of[req.Labels[sdk.LabelInstance]] = fmt.Sprintf("%s gave %q", what, err)
	default:
		d.open[req.Labels[sdk.LabelInstance]] = true
	}
}

// saysNothingWasMade reads an error of Create as the broker does.
func saysNothingWasMade(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && (e.NoEffect || !e.Code.LeavesOpen())
}

// hold checks that they were true: at once, when an instance that was made after them
// is listed, and when one that is late would have turned up.
func (d *denials) hold() {
	if len(d.of) == 0 {
		d.skip("no error of Create says that nothing was made (NoEffect)")
	}
	late := time.After(lateness)
	d.look("at once")
	d.made[d.create(d.createRequest("")).ID] = true
	d.look("when another was made")
	select {
	case <-late:
	case <-d.ctx.Done():
	}
	d.look("a little later")
}

func (d *denials) look(when string) {
	for id, found := range d.listed() {
		label := found.Labels[sdk.LabelInstance]
		if what, ok := d.of[label]; ok {
			d.fail("%s, and %s List has the instance %s with its labels", what, when, id)
		}
		if !d.made[id] && len(d.open) == 0 {
			d.fail("%s List has the instance %s, which no Create returned; all others were refused and said that nothing was made", when, id)
		}
	}
}

// destroyAll leaves nothing behind of what nobody knows of. What is wrong with that
// other cases find.
func (d *denials) destroyAll() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), d.suite.within(callTimeout))
	defer cancel()
	list, _ := d.List(ctx)
	for _, found := range list {
		_ = d.Destroy(ctx, found.ID)
	}
}

// "any other code says that there is none … Set NoEffect in the error where nothing can
// have been made." (Provider.Create) What else than an unknown template a provider
// refuses is its own affair: what it makes of it all the same may be there.
func refusedMakesNothing(c *scene) {
	d := c.newSession(newBrokerID(), newBrokerID()).denied()
	for what, change := range map[string]func(*sdk.CreateRequest){
		"Create with an unknown template":                        func(r *sdk.CreateRequest) { r.Template = "no-such-template" },
		"Create without a template":                              func(r *sdk.CreateRequest) { r.Template = "" },
		"Create with a variable of which the name is impossible": func(r *sdk.CreateRequest) { r.Env = map[string]string{"A=B": "c"} },
		"Create with a life below zero":                          func(r *sdk.CreateRequest) { r.TTL = -time.Hour },
	} {
		req := d.createRequest("")
		change(&req)
		d.try(what, req)
	}
	d.hold()
}

// The same. The back end says what it has when it is back.
func refusedWithoutBackendMakesNothing(c *scene) {
	s, before := c.withBackend()
	d := s.denied()
	d.made[before.ID] = true
	repair := c.breaks()
	for range 2 { // the first may be sent on a connection that is open yet
		d.try("Create without a back end", s.createRequest(c.language))
	}
	repair()
	c.must(s.awaitHealth(c.ctx), "after the back end came back")
	d.hold()
}

func errorCases() []Case {
	const group = "errors"
	return []Case{
		{Group: group, Name: "an unknown instance is not found", run: unknownInstance},
		{Group: group, Name: "names that no instance can have are not found", run: impossibleInstances},
		{Group: group, Name: "the beginning of an ID is not the instance", run: prefixIsNotFound},
		{Group: group, Name: "a language that it does not offer is refused", run: refusesUnknownLanguage},
		{Group: group, Name: "an unknown context is not found", run: unknownContext},
		{Group: group, Name: "errors have codes", run: errorsHaveCodes},
		{Group: group, Name: "errors name no path of the host", run: errorsNameNoPath},
	}
}

// "Return CodeNotFound for an unknown instance, with NoEffect." (Provider.Execute)
func unknownInstance(c *scene) {
	c.someLanguage()
	got := c.tried(c.withID("unknown" + randomWord()).request(c.samples.Hello))
	e := c.refusal(got.err, "Execute in an unknown instance", []sdk.Code{sdk.CodeNotFound})
	c.check(e.NoEffect, "Execute in an unknown instance gave %v without NoEffect; a session whose instance is gone gets no other", e)
}

// The same. The broker asks for IDs that a provider gave; these must not lead
// anywhere all the same.
func impossibleInstances(c *scene) {
	c.someLanguage()
	for _, id := range []string{"", ".", "..", "../..", "/", "a/b", "a b", "-rf", "*", strings.Repeat("x", 300), "x\ny"} {
		got := c.tried(c.withID(id).request(c.samples.Hello))
		c.refused(got.err, "Execute in the instance "+shown(id), sdk.CodeNotFound, sdk.CodeInvalidRequest)
	}
}

// "some back ends resolve unique prefixes" (Instance.ID): that must not show.
func prefixIsNotFound(c *scene) {
	in := c.instance()
	for _, other := range []string{in.ID[:len(in.ID)-1], in.ID + "0"} {
		got := c.tried(c.withID(other).request(c.samples.Hello))
		c.refused(got.err, "Execute in the instance "+other+" beside "+in.ID, sdk.CodeNotFound)
	}
	c.must(c.call("Destroy", func(ctx context.Context) error { return c.Destroy(ctx, in.ID[:len(in.ID)-1]) }), "destroy the beginning of an ID")
	in.prints(c.samples.Hello, "hello\n")
}

// "Languages that Execute accepts." (Description)
func refusesUnknownLanguage(c *scene) {
	req := c.instance().request(c.samples.Hello)
	req.Language = "no-such-language"
	c.refused(c.tried(req).err, "Execute in a language that it does not offer", sdk.CodeInvalidRequest, sdk.CodeNotSupported)
}

// "Return CodeNotFound … for an unknown context." (Provider.Execute, Contexts)
func unknownContext(c *scene) {
	req := c.instance().request(c.code(c.samples.Hello))
	req.ContextID = "unknown" + randomWord()
	codes := []sdk.Code{sdk.CodeNotFound}
	if !c.claims(sdk.CapabilityContexts) {
		codes = append(codes, sdk.CodeNotSupported, sdk.CodeInvalidRequest)
	}
	c.refused(c.tried(req).err, "Execute in an unknown context", codes...)
}

// provoked are errors of all kinds.
func (c *scene) provoked() map[string]error {
	c.someLanguage()
	unknown := "unknown" + randomWord()
	strange := c.createRequest("")
	strange.Template = "no-such-template"
	return map[string]error{
		"Execute in an unknown instance": c.tried(c.withID(unknown).request(c.samples.Hello)).err,
		"Create with an unknown template": c.call("Create", func(ctx context.Context) error {
			_, err := c.Create(ctx, strange)
			return err
		}),
	}
}

// "A method that fails should return an *Error: its code reaches the agent … Any
// other error becomes SB000." (Provider)
func errorsHaveCodes(c *scene) {
	for doing, err := range c.provoked() {
		c.check(err != nil, "%s succeeded", doing)
		c.check(sdk.CodeOf(err) != sdk.CodeInternal, "%s gave an error without a code: %v", doing, err)
	}
}

// "Message is for the caller: no secrets, no paths of the host." (Error)
func errorsNameNoPath(c *scene) {
	for doing, err := range c.provoked() {
		c.check(err != nil, "%s succeeded", doing)
		c.check(!strings.Contains(err.Error(), c.stateDir), "%s gave an error that names the state directory: %v", doing, err)
	}
}
