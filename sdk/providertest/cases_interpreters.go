package providertest

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// deathTimeout is how long it may take to tell that an interpreter has ended, before
// patience.
const deathTimeout = 10 * time.Second

// interpreterCases are about the interpreter behind a context: what comes of it when it
// is replaced, and what passes between it and the caller.
func interpreterCases(languages []sdk.Language) []Case {
	const group = "contexts"
	return needing(inLanguages(languages, []Case{
		{Group: group, Name: "restarted, it has its directory and its variables", run: restartedInPlace},
		{Group: group, Name: "after the death of its interpreter it has its directory and its variables", run: revivedInPlace},
		{Group: group, Name: "killed at a time limit, it has its directory and its variables", run: killedInPlace},
		{Group: group, Name: "code that ends its interpreter fails within seconds", run: interpreterEnds},
		{Group: group, Name: "output arrives while its code runs", run: contextOutputArrives},
		{Group: group, Name: "a declaration has no value", run: declarationHasNoValue, needs: []sdk.Capability{sdk.CapabilityArtifacts}},
		{Group: group, Name: "variables of one execution are gone after it", run: variablesOfOneExecution},
	}), sdk.CapabilityContexts)
}

// placed is a context with a directory and variables of its own.
type placed struct {
	codeContext
	env map[string]string
}

func (c *scene) placedContext() placed {
	p := placed{env: oddVariables("CONTEXT", randomWord())}
	p.codeContext = c.instance().newContext(func(req *sdk.CreateContextRequest) { req.Cwd, req.Env = "/tmp", p.env })
	p.inPlace("when it is new")
	return p
}

// inPlace checks that code of the context has what the context was made with.
func (p placed) inPlace(when string) {
	got := p.run(p.samples.Where)
	got.succeeded()
	equal(p, got.stdout, "/tmp", "the directory of the context, %s,", when)
	got = p.run(p.samples.Variables)
	got.succeeded()
	p.hasVariables(got.stdout, p.env)
}

// "ID, language, directory and environment stay." (Contexts.RestartContext)
func restartedInPlace(c *scene) {
	p := c.placedContext()
	p.restart()
	p.inPlace("restarted")
}

// "A context that starts afresh is as RestartContext leaves it." (Contexts)
func revivedInPlace(c *scene) {
	p := c.placedContext()
	p.run(c.samples.Leave)
	p.inPlace("after the death of its interpreter")
}

// The same.
func killedInPlace(c *scene) {
	p := c.placedContext()
	req := p.request(c.samples.StubbornInContext)
	req.Timeout = c.suite.within(time.Second)
	equal(c, c.execute(req).Status, sdk.StatusTimeout, "the status of code that runs into its timeout")
	p.inPlace("after a time limit that code ignored")
}

// "Code that ends its interpreter is StatusFailed soon after, not at its time limit."
// (Contexts)
func interpreterEnds(c *scene) {
	made := c.instance().newContext()
	for _, sample := range []string{c.samples.Leave, c.samples.Killed} {
		req := made.request(sample)
		req.Timeout = c.suite.within(caseTimeout)
		got := c.begin(c.ctx, req).await(deathTimeout, "its interpreter had ended")
		c.must(got.err, "execute")
		c.check(got.Status == sdk.StatusFailed && got.ExitCode != 0, "the status is %s with exit code %d; it must be failed, with an exit code that is not 0", got.Status, got.ExitCode)
		c.check(got.Detail != "", "the result does not say that the state is lost")
		made.prints(c.samples.Hello, "hello\n")
	}
}

// "Output goes to out as it appears." (Provider.Execute)
func contextOutputArrives(c *scene) {
	made := c.instance().newContext()
	e := c.begin(c.ctx, made.lasting())
	e.saying("ready\n")
	select {
	case <-e.done:
		got := e.outcome()
		c.fail("the code ended (%s, %v) when its output arrived", got.Status, got.err)
	default:
	}
}

// "code that is a declaration and nothing else has none" (Contexts)
func declarationHasNoValue(c *scene) {
	made := c.instance().newContext()
	req := made.request(c.samples.Declaration)
	req.Artifacts = generous()
	got := c.execute(req)
	got.succeeded()
	c.check(len(got.artifacts) == 0, "a declaration has artifacts: %s", shown(got.artifacts))
	equal(c, got.stdout, "", "stdout")
}

// "Env is added to the instance's environment for this execution." (ExecuteRequest)
func variablesOfOneExecution(c *scene) {
	made := c.instance().newContext()
	req := made.request(c.samples.Value)
	req.Env = map[string]string{"PROVIDERTEST": "for once"}
	got := c.execute(req)
	got.succeeded()
	equal(c, got.stdout, "for once", "the variable in its execution")
	made.prints(c.samples.Value, "absent")
}
