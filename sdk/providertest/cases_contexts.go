package providertest

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func contextCases(languages []sdk.Language) []Case {
	const group = "contexts"
	return needing(inLanguages(languages, []Case{
		{Group: group, Name: "a context keeps its state", run: contextKeepsState},
		{Group: group, Name: "two contexts have states of their own", run: contextsAreApart},
		{Group: group, Name: "plain executions do not share its state", run: contextIsNotTheInstance},
		{Group: group, Name: "it starts in the directory and with the variables that were asked for", run: contextSurroundings},
		{Group: group, Name: "executions of one context run one after the other", run: contextTakesTurns},
		{Group: group, Name: "other contexts do not wait", run: contextsDoNotWait},
		{Group: group, Name: "a restart forgets the state and keeps the context", run: contextRestarts},
		{Group: group, Name: "a restart ends what runs", run: contextRestartEndsCode},
		{Group: group, Name: "a deleted context is not found", run: contextIsDeleted},
		{Group: group, Name: "a timeout leaves the context usable and says what became of the state", run: contextTimesOut},
		{Group: group, Name: "a cancelled execution leaves the context usable", run: contextIsCancelled},
		{Group: group, Name: "the death of one interpreter touches no other", run: contextDies},
		{Group: group, Name: "main is called with arguments", run: contextCallsMain},
		{Group: group, Name: "a main that is only defined is not called", run: contextOnlyDefinesMain},
		{Group: group, Name: "the value of the last expression is an artifact", run: contextShowsValue, needs: []sdk.Capability{sdk.CapabilityArtifacts}},
		{Group: group, Name: "the directory of artifacts is there before each execution", run: contextHasArtifacts, needs: []sdk.Capability{sdk.CapabilityArtifacts}},
		{Group: group, Name: "contexts are listed", run: contextsAreListed},
		{Group: group, Name: "a context is of one instance", run: contextIsOfOneInstance},
		{Group: group, Name: "unknown contexts are not found", run: contextUnknown},
	}), sdk.CapabilityContexts)
}

// newContext makes a context of the case's language, and skips where there are
// none: the contract leaves it to the provider in which languages it has contexts.
func (c *scene) newContext(instance string, change ...func(*sdk.CreateContextRequest)) sdk.CodeContext {
	made, err := c.triedContext(instance, change...)
	if code := sdk.CodeOf(err); code == sdk.CodeNotSupported || code == sdk.CodeInvalidRequest {
		c.skip("the provider has no contexts in %s: %v", c.language, err)
	}
	c.must(err, "create a context")
	return made
}

// triedContext makes a context and returns the error too.
func (c *scene) triedContext(instance string, change ...func(*sdk.CreateContextRequest)) (sdk.CodeContext, error) {
	req := sdk.CreateContextRequest{InstanceID: instance, Language: c.language}
	for _, f := range change {
		f(&req)
	}
	var made sdk.CodeContext
	err := c.call("CreateContext", func(ctx context.Context) (err error) {
		made, err = c.CreateContext(ctx, req)
		return err
	})
	if err == nil {
		equal(c, made.Language, c.language, "the language of the context")
	}
	return made, err
}

// in is a request for code in a context, which knows its language.
func (c *scene) in(instance string, made sdk.CodeContext, sample string) sdk.ExecuteRequest {
	req := c.request(instance, c.code(sample))
	req.ContextID, req.Language = made.ID, ""
	return req
}

// lastingIn is one for code that waits until it is stopped.
func (c *scene) lastingIn(instance string, made sdk.CodeContext) sdk.ExecuteRequest {
	req := c.in(instance, made, c.samples.WaitInContext)
	req.Timeout = c.suite.within(caseTimeout)
	return req
}

func (c *scene) printsIn(instance string, made sdk.CodeContext, sample, want string) {
	got := c.execute(c.in(instance, made, sample))
	c.succeeded(got)
	equal(c, got.stdout, want, "stdout")
}

// "variables, imports and open files stay from one execution to the next"
// (Contexts)
func contextKeepsState(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	c.printsIn(id, made, c.samples.GetVariable, "absent")
	c.succeeded(c.execute(c.in(id, made, c.samples.SetVariable)))
	c.printsIn(id, made, c.samples.GetVariable, "1")
}

// The same: of that context.
func contextsAreApart(c *scene) {
	id := c.instance()
	one, other := c.newContext(id), c.newContext(id)
	c.check(one.ID != other.ID, "two contexts have the ID %s", one.ID)
	c.succeeded(c.execute(c.in(id, one, c.samples.SetVariable)))
	c.printsIn(id, other, c.samples.GetVariable, "absent")
}

// "Empty … means a fresh one." (ExecuteRequest.ContextID)
func contextIsNotTheInstance(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	c.succeeded(c.execute(c.in(id, made, c.samples.SetVariable)))
	c.prints(id, c.samples.GetVariable, "absent")
	c.succeeded(c.execute(c.in(id, made, c.samples.Write)))
	c.prints(id, c.samples.Read, "kept")
}

// "Cwd is a directory inside the instance; empty for /workspace. Env is added to
// the instance's environment." (CreateContextRequest)
func contextSurroundings(c *scene) {
	id := c.instance()
	made := c.newContext(id, func(req *sdk.CreateContextRequest) {
		req.Cwd, req.Env = "/tmp", map[string]string{"PROVIDERTEST": "of the context"}
	})
	equal(c, made.Cwd, "/tmp", "the directory of the context")
	c.printsIn(id, made, c.samples.Value, "of the context")
	c.succeeded(c.execute(c.in(id, made, c.samples.Write)))
	c.prints(id, c.samples.ReadTmp, "kept")
	c.prints(id, c.samples.Value, "absent")
}

// "Executions of one context run one after the other." (Contexts)
func contextTakesTurns(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	first := c.begin(c.ctx, c.lastingIn(id, made))
	c.saying(first, "ready")
	second := c.begin(c.ctx, c.in(id, made, c.samples.Hello))
	// What a third context does meanwhile gives the second time to go wrong.
	c.printsIn(id, c.newContext(id), c.samples.Hello, "hello\n")
	select {
	case <-second.done:
		got := second.outcome()
		c.fail("an execution ended (%s, %v) although one before it runs in the same context", got.Status, got.err)
	default:
	}
	c.must(c.call("RestartContext", func(ctx context.Context) error { return c.RestartContext(ctx, id, made.ID) }), "restart the context")
}

// "those of others do not wait for them" (Contexts)
func contextsDoNotWait(c *scene) {
	id := c.instance()
	busy, free := c.newContext(id), c.newContext(id)
	c.saying(c.begin(c.ctx, c.lastingIn(id, busy)), "ready")
	c.printsIn(id, free, c.samples.Hello, "hello\n")
	c.prints(id, c.samples.Hello, "hello\n")
}

// "RestartContext ends what runs in the context and forgets its state. ID,
// language, directory and environment stay." (Contexts)
func contextRestarts(c *scene) {
	id := c.instance()
	made := c.newContext(id, func(req *sdk.CreateContextRequest) { req.Env = map[string]string{"PROVIDERTEST": "stays"} })
	c.succeeded(c.execute(c.in(id, made, c.samples.SetVariable)))
	c.must(c.call("RestartContext", func(ctx context.Context) error { return c.RestartContext(ctx, id, made.ID) }), "restart the context")
	c.printsIn(id, made, c.samples.GetVariable, "absent")
	c.printsIn(id, made, c.samples.Value, "stays")
}

// The same.
func contextRestartEndsCode(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	e := c.begin(c.ctx, c.lastingIn(id, made))
	c.saying(e, "ready")
	c.must(c.call("RestartContext", func(ctx context.Context) error { return c.RestartContext(ctx, id, made.ID) }), "restart the context")
	got := c.await(e, settleTimeout, "its context was restarted")
	c.check(got.err != nil || got.Status != sdk.StatusSucceeded, "code that a restart cut short counts as succeeded")
	c.printsIn(id, made, c.samples.Hello, "hello\n")
}

// "DeleteContext ends it. To delete one that does not exist is a success."
// (Contexts)
func contextIsDeleted(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	for range 2 {
		c.must(c.call("DeleteContext", func(ctx context.Context) error { return c.DeleteContext(ctx, id, made.ID) }), "delete the context")
	}
	c.refusedField(c.tried(c.in(id, made, c.samples.Hello)).err, "Execute in a deleted context", sdk.CodeNotFound, "context_id")
}

// "Stopping an execution interrupts the code first and keeps the state where it
// can; where it cannot, the context starts afresh and ExecuteResult.Detail says
// so." (Contexts)
func contextTimesOut(c *scene) {
	for _, sample := range []string{c.samples.WaitInContext, c.samples.Spin} {
		id := c.instance()
		made := c.newContext(id)
		c.succeeded(c.execute(c.in(id, made, c.samples.SetVariable)))
		req := c.in(id, made, sample)
		req.Timeout = c.suite.within(time.Second)
		got := c.execute(req)
		equal(c, got.Status, sdk.StatusTimeout, "the status of code that runs into its timeout")
		after := c.execute(c.in(id, made, c.samples.GetVariable))
		c.succeeded(after)
		switch {
		case after.stdout == "1":
		case after.stdout == "absent" && got.Detail != "":
		default:
			c.fail("the variable is %q after the timeout, and the detail of the execution %q", after.stdout, got.Detail)
		}
	}
}

// The same for "its context's end". (Contexts)
func contextIsCancelled(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	e := c.begin(c.ctx, c.lastingIn(id, made))
	c.saying(e, "ready")
	e.cancel()
	<-e.done
	c.printsIn(id, made, c.samples.Hello, "hello\n")
}

// "a crash of one touches no other" (Contexts)
func contextDies(c *scene) {
	id := c.instance()
	one, other := c.newContext(id), c.newContext(id)
	c.succeeded(c.execute(c.in(id, other, c.samples.SetVariable)))
	got := c.execute(c.in(id, one, c.samples.Killed))
	c.check(got.Status == sdk.StatusFailed, "the status of code that kills its interpreter is %s", got.Status)
	c.printsIn(id, other, c.samples.GetVariable, "1")
	c.printsIn(id, one, c.samples.Hello, "hello\n")
}

// "In a context main is called with Arguments." (Contexts)
func contextCallsMain(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	req := c.in(id, made, c.samples.Main.Sum)
	req.Arguments = []byte(`{"a": 1, "b": 2}`)
	got := c.execute(req)
	c.returned(got, map[string]any{"sum": 3.0})
	equal(c, got.stdout, "working\n", "stdout")
}

// "and never without: a piece of code that only defines it is an ordinary one
// there." (Contexts)
func contextOnlyDefinesMain(c *scene) {
	id := c.instance()
	got := c.execute(c.in(id, c.newContext(id), c.samples.Main.Alone))
	c.isScript(got, "")
}

// "In a context the value of the last expression is an artifact of kind
// ArtifactResult." (Contexts)
func contextShowsValue(c *scene) {
	id := c.instance()
	req := c.in(id, c.newContext(id), c.samples.Value42)
	req.Artifacts = generous()
	got := c.execute(req)
	c.succeeded(got)
	for _, a := range got.artifacts {
		if a.Kind == sdk.ArtifactResult && a.MIMEType == "text/plain" {
			equal(c, string(a.Data), "42", "the value of the last expression")
			return
		}
	}
	c.fail("there is no artifact of the kind %s with the type text/plain among %s", sdk.ArtifactResult, shown(got.artifacts))
}

// "Before each execution a provider of artifacts makes /workspace/artifacts"
// (ArtifactLimits)
func contextHasArtifacts(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	for _, sample := range []string{c.samples.FigureAtOnce, c.samples.RemoveArtifacts, c.samples.FigureAtOnce} {
		req := c.in(id, made, sample)
		req.Artifacts = generous()
		c.succeeded(c.execute(req))
	}
}

// "ListContexts": what there is, with "Busy says whether code runs in it."
// (CodeContext)
func contextsAreListed(c *scene) {
	id := c.instance()
	one, other := c.newContext(id), c.newContext(id)
	c.saying(c.begin(c.ctx, c.lastingIn(id, one)), "ready")
	list, err := c.ListContexts(c.ctx, id)
	c.must(err, "list the contexts")
	busy := map[string]bool{}
	for _, l := range list {
		busy[l.ID] = l.Busy
	}
	equal(c, busy, map[string]bool{one.ID: true, other.ID: false}, "which contexts are busy")
	c.must(c.DeleteContext(c.ctx, id, one.ID), "delete a busy context")
	list, err = c.ListContexts(c.ctx, id)
	c.must(err, "list the contexts")
	c.check(len(list) == 1 && list[0].ID == other.ID, "after one of two was deleted there are %s", shown(list))
}

// "unique in its instance" (CodeContext.ID)
func contextIsOfOneInstance(c *scene) {
	id, other := c.instance(), c.instance()
	made := c.newContext(id)
	c.succeeded(c.execute(c.in(id, made, c.samples.SetVariable)))
	got := c.tried(c.in(other, made, c.samples.GetVariable))
	c.refused(got.err, "Execute in a context of another instance", sdk.CodeNotFound)
}

// "All methods return CodeNotFound for an unknown instance or context, as does
// Execute; about a context it sets Field to "context_id"." (Contexts)
func contextUnknown(c *scene) {
	id := c.instance()
	unknown := sdk.CodeContext{ID: "unknown"}
	c.refusedField(c.tried(c.in(id, unknown, c.samples.Hello)).err, "Execute in an unknown context", sdk.CodeNotFound, "context_id")
	c.refusedField(c.RestartContext(c.ctx, id, "unknown"), "RestartContext of an unknown one", sdk.CodeNotFound, "context_id")
	_, err := c.ListContexts(c.ctx, "unknown"+randomWord())
	c.refused(err, "ListContexts of an unknown instance", sdk.CodeNotFound)
	for _, word := range []string{"", "..", strings.Repeat("x", 300)} {
		c.refused(c.RestartContext(c.ctx, id, word), "RestartContext of "+shown(word), sdk.CodeNotFound, sdk.CodeInvalidRequest)
	}
}
