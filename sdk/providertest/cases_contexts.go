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
func (in instance) newContext(change ...func(*sdk.CreateContextRequest)) codeContext {
	made, err := in.tryContext(change...)
	if code := sdk.CodeOf(err); code == sdk.CodeNotSupported || code == sdk.CodeInvalidRequest {
		in.skip("the provider has no contexts in %s: %v", in.language, err)
	}
	in.must(err, "create a context")
	return made
}

// tryContext makes a context and returns the error too.
func (in instance) tryContext(change ...func(*sdk.CreateContextRequest)) (codeContext, error) {
	req := sdk.CreateContextRequest{InstanceID: in.ID, Language: in.language}
	for _, f := range change {
		f(&req)
	}
	var made sdk.CodeContext
	err := in.call("CreateContext", func(ctx context.Context) (err error) {
		made, err = in.CreateContext(ctx, req)
		return err
	})
	if err == nil {
		equal(in, made.Language, in.language, "the language of the context")
	}
	return codeContext{in.scene, made, in}, err
}

// codeContext is a context of an instance. What it runs runs in it.
type codeContext struct {
	*scene
	sdk.CodeContext
	of instance
}

// request is one for code in the context, which knows its language.
func (k codeContext) request(code string) sdk.ExecuteRequest {
	req := k.of.request(k.code(code))
	req.ContextID, req.Language = k.ID, ""
	return req
}

// lasting is one for code that waits until it is stopped.
func (k codeContext) lasting() sdk.ExecuteRequest {
	req := k.request(k.samples.WaitInContext)
	req.Timeout = k.suite.within(caseTimeout)
	return req
}

// run executes a sample in the context.
func (k codeContext) run(sample string) outcome { return k.execute(k.request(sample)) }

// prints runs a sample and checks that it succeeds and what it prints.
func (k codeContext) prints(sample, want string) { k.run(sample).printed(want) }

// restart has the context begin anew.
func (k codeContext) restart() {
	k.must(k.call("RestartContext", func(ctx context.Context) error { return k.RestartContext(ctx, k.of.ID, k.ID) }), "restart the context")
}

// "variables, imports and open files stay from one execution to the next"
// (Contexts)
func contextKeepsState(c *scene) {
	made := c.instance().newContext()
	made.prints(c.samples.GetVariable, "absent")
	made.run(c.samples.SetVariable).succeeded()
	made.prints(c.samples.GetVariable, "1")
}

// The same: of that context.
func contextsAreApart(c *scene) {
	in := c.instance()
	one, other := in.newContext(), in.newContext()
	c.check(one.ID != other.ID, "two contexts have the ID %s", one.ID)
	one.run(c.samples.SetVariable).succeeded()
	other.prints(c.samples.GetVariable, "absent")
}

// "Empty … means a fresh one." (ExecuteRequest.ContextID)
func contextIsNotTheInstance(c *scene) {
	in := c.instance()
	made := in.newContext()
	made.run(c.samples.SetVariable).succeeded()
	in.prints(c.samples.GetVariable, "absent")
	made.run(c.samples.Write).succeeded()
	in.prints(c.samples.Read, "kept")
}

// "Cwd is a directory inside the instance; empty for /workspace. Env is added to
// the instance's environment." (CreateContextRequest)
func contextSurroundings(c *scene) {
	in := c.instance()
	made := in.newContext(func(req *sdk.CreateContextRequest) {
		req.Cwd, req.Env = "/tmp", map[string]string{"PROVIDERTEST": "of the context"}
	})
	equal(c, made.Cwd, "/tmp", "the directory of the context")
	made.prints(c.samples.Value, "of the context")
	made.run(c.samples.Write).succeeded()
	in.prints(c.samples.ReadTmp, "kept")
	in.prints(c.samples.Value, "absent")
}

// "Executions of one context run one after the other." (Contexts)
func contextTakesTurns(c *scene) {
	in := c.instance()
	made := in.newContext()
	first := c.begin(c.ctx, made.lasting())
	first.saying("ready")
	second := c.begin(c.ctx, made.request(c.samples.Hello))
	// What a third context does meanwhile gives the second time to go wrong.
	in.newContext().prints(c.samples.Hello, "hello\n")
	select {
	case <-second.done:
		got := second.outcome()
		c.fail("an execution ended (%s, %v) although one before it runs in the same context", got.Status, got.err)
	default:
	}
	made.restart()
}

// "those of others do not wait for them" (Contexts)
func contextsDoNotWait(c *scene) {
	in := c.instance()
	busy, free := in.newContext(), in.newContext()
	c.begin(c.ctx, busy.lasting()).saying("ready")
	free.prints(c.samples.Hello, "hello\n")
	in.prints(c.samples.Hello, "hello\n")
}

// "RestartContext ends what runs in the context and forgets its state. ID,
// language, directory and environment stay." (Contexts)
func contextRestarts(c *scene) {
	made := c.instance().newContext(func(req *sdk.CreateContextRequest) { req.Env = map[string]string{"PROVIDERTEST": "stays"} })
	made.run(c.samples.SetVariable).succeeded()
	made.restart()
	made.prints(c.samples.GetVariable, "absent")
	made.prints(c.samples.Value, "stays")
}

// The same.
func contextRestartEndsCode(c *scene) {
	made := c.instance().newContext()
	e := c.begin(c.ctx, made.lasting())
	e.saying("ready")
	made.restart()
	got := e.await(settleTimeout, "its context was restarted")
	c.check(got.err != nil || got.Status != sdk.StatusSucceeded, "code that a restart cut short counts as succeeded")
	made.prints(c.samples.Hello, "hello\n")
}

// "DeleteContext ends it. To delete one that does not exist is a success."
// (Contexts)
func contextIsDeleted(c *scene) {
	in := c.instance()
	made := in.newContext()
	for range 2 {
		c.must(c.call("DeleteContext", func(ctx context.Context) error { return c.DeleteContext(ctx, in.ID, made.ID) }), "delete the context")
	}
	c.refusedField(c.tried(made.request(c.samples.Hello)).err, "Execute in a deleted context", sdk.CodeNotFound, "context_id")
}

// "Stopping an execution interrupts the code first and keeps the state where it
// can; where it cannot, the context starts afresh and ExecuteResult.Detail says
// so." (Contexts)
func contextTimesOut(c *scene) {
	for _, sample := range []string{c.samples.WaitInContext, c.samples.Spin} {
		made := c.instance().newContext()
		made.run(c.samples.SetVariable).succeeded()
		req := made.request(sample)
		req.Timeout = c.suite.within(time.Second)
		got := c.execute(req)
		equal(c, got.Status, sdk.StatusTimeout, "the status of code that runs into its timeout")
		after := made.run(c.samples.GetVariable)
		after.succeeded()
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
	made := c.instance().newContext()
	e := c.begin(c.ctx, made.lasting())
	e.saying("ready")
	e.cancel()
	<-e.done
	made.prints(c.samples.Hello, "hello\n")
}

// "a crash of one touches no other" (Contexts)
func contextDies(c *scene) {
	in := c.instance()
	one, other := in.newContext(), in.newContext()
	other.run(c.samples.SetVariable).succeeded()
	got := one.run(c.samples.Killed)
	c.check(got.Status == sdk.StatusFailed, "the status of code that kills its interpreter is %s", got.Status)
	other.prints(c.samples.GetVariable, "1")
	one.prints(c.samples.Hello, "hello\n")
}

// "In a context main is called with Arguments." (Contexts)
func contextCallsMain(c *scene) {
	made := c.instance().newContext()
	req := made.request(c.samples.Main.Sum)
	req.Arguments = []byte(`{"a": 1, "b": 2}`)
	got := c.execute(req)
	got.returned(map[string]any{"sum": 3.0})
	equal(c, got.stdout, "working\n", "stdout")
}

// "and never without: a piece of code that only defines it is an ordinary one
// there." (Contexts)
func contextOnlyDefinesMain(c *scene) {
	c.instance().newContext().run(c.samples.Main.Alone).isScript("")
}

// "In a context the value of the last expression is an artifact of kind
// ArtifactResult." (Contexts)
func contextShowsValue(c *scene) {
	req := c.instance().newContext().request(c.samples.Value42)
	req.Artifacts = generous()
	got := c.execute(req)
	got.succeeded()
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
	made := c.instance().newContext()
	for _, sample := range []string{c.samples.FigureAtOnce, c.samples.RemoveArtifacts, c.samples.FigureAtOnce} {
		req := made.request(sample)
		req.Artifacts = generous()
		c.execute(req).succeeded()
	}
}

// "ListContexts": what there is, with "Busy says whether code runs in it."
// (CodeContext)
func contextsAreListed(c *scene) {
	in := c.instance()
	one, other := in.newContext(), in.newContext()
	c.begin(c.ctx, one.lasting()).saying("ready")
	list, err := c.ListContexts(c.ctx, in.ID)
	c.must(err, "list the contexts")
	busy := map[string]bool{}
	for _, l := range list {
		busy[l.ID] = l.Busy
	}
	equal(c, busy, map[string]bool{one.ID: true, other.ID: false}, "which contexts are busy")
	c.must(c.DeleteContext(c.ctx, in.ID, one.ID), "delete a busy context")
	list, err = c.ListContexts(c.ctx, in.ID)
	c.must(err, "list the contexts")
	c.check(len(list) == 1 && list[0].ID == other.ID, "after one of two was deleted there are %s", shown(list))
}

// "unique in its instance" (CodeContext.ID)
func contextIsOfOneInstance(c *scene) {
	in, other := c.instance(), c.instance()
	made := in.newContext()
	made.run(c.samples.SetVariable).succeeded()
	got := c.tried(codeContext{c, made.CodeContext, other}.request(c.samples.GetVariable))
	c.refused(got.err, "Execute in a context of another instance", sdk.CodeNotFound)
}

// "All methods return CodeNotFound for an unknown instance or context, as does
// Execute; about a context it sets Field to "context_id"." (Contexts)
func contextUnknown(c *scene) {
	in := c.instance()
	unknown := codeContext{c, sdk.CodeContext{ID: "unknown"}, in}
	c.refusedField(c.tried(unknown.request(c.samples.Hello)).err, "Execute in an unknown context", sdk.CodeNotFound, "context_id")
	c.refusedField(c.RestartContext(c.ctx, in.ID, "unknown"), "RestartContext of an unknown one", sdk.CodeNotFound, "context_id")
	_, err := c.ListContexts(c.ctx, "unknown"+randomWord())
	c.refused(err, "ListContexts of an unknown instance", sdk.CodeNotFound)
	for _, word := range []string{"", "..", strings.Repeat("x", 300)} {
		c.refused(c.RestartContext(c.ctx, in.ID, word), "RestartContext of "+shown(word), sdk.CodeNotFound, sdk.CodeInvalidRequest)
	}
}
