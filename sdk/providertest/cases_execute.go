package providertest

import (
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func executeCases() []Case {
	const group = "execute"
	return []Case{
		{Group: group, Name: "code runs and succeeds", run: runsCode},
		{Group: group, Name: "code that prints nothing succeeds", run: runsSilentCode},
		{Group: group, Name: "an exit code arrives as it is", run: exitCodes},
		{Group: group, Name: "code that crashes fails and says why", run: crashes},
		{Group: group, Name: "text that is no code fails and says why", run: brokenCode},
		{Group: group, Name: "a signal is told as exit code 128 and more", run: killedCode},
		{Group: group, Name: "the instance goes on after code that failed", run: goesOnAfterFailure},
		{Group: group, Name: "a plain script has no result", run: scriptsHaveNoResult},
		{Group: group, Name: "standard input is empty", run: emptyInput},
		{Group: group, Name: "variables of the instance are in the environment", run: instanceEnvironment},
		{Group: group, Name: "variables of the execution are in the environment", run: executionEnvironment},
		{Group: group, Name: "variables of the execution win and end with it", run: environmentEnds},
		{Group: group, Name: "values of variables arrive unchanged", run: strangeEnvironment},
		{Group: group, Name: "files stay from one execution to the next", run: filesStay},
		{Group: group, Name: "code starts in /workspace", run: startsInWorkspace},
		{Group: group, Name: "variables of the code do not stay", run: variablesGo},
		{Group: group, Name: "the duration is that of the code", run: durations},
		{Group: group, Name: "long code runs", run: longCode},
		{Group: group, Name: "code that uses too much memory is stopped", run: outOfMemory},
		{Group: group, Name: "the instance goes on after too much memory", run: goesOnAfterMemory},
	}
}

// "Execute runs code in an instance." (Provider.Execute)
func runsCode(c *scene) { c.instance().prints(c.samples.Hello, "hello\n") }

// The same.
func runsSilentCode(c *scene) {
	got := c.instance().run(c.samples.Silent)
	got.succeeded()
	equal(c, got.stdout+got.stderr, "", "the output of code that prints nothing")
}

// "ExitCode of the interpreter" (ExecuteResult); StatusFailed for "any other exit
// code" than 0.
func exitCodes(c *scene) {
	got := c.instance().run(c.samples.ExitThree)
	equal(c, got.ExitCode, 3, "the exit code")
	equal(c, got.Status, sdk.StatusFailed, "the status")
	equal(c, got.stdout, "before\n", "stdout")
}

// "What becomes of the code (a non-zero exit, …) is a result, not an error."
// (Provider.Execute)
func crashes(c *scene) { c.instance().run(c.samples.Crash).failedInCode() }

// The same.
func brokenCode(c *scene) { c.instance().run(c.samples.Broken).failedInCode() }

// "128 plus the signal when one ended it" (ExecuteResult.ExitCode)
func killedCode(c *scene) {
	got := c.instance().run(c.samples.Killed)
	equal(c, got.ExitCode, 128+9, "the exit code of code that SIGKILL ended")
	equal(c, got.Status, sdk.StatusFailed, "the status")
}

// "the instance stays usable" (Provider.Execute)
func goesOnAfterFailure(c *scene) {
	in := c.instance()
	for _, sample := range []string{c.samples.Crash, c.samples.Broken, c.samples.ExitThree} {
		in.run(sample)
		in.prints(c.samples.Hello, "hello\n")
	}
}

// "else the code is a plain script, and Result is nil." (package sdk)
func scriptsHaveNoResult(c *scene) {
	got := c.instance().run(c.samples.Hello)
	c.check(got.Result == nil, "the result of a plain script is %s; it must be nil", got.Result)
}

// "Standard input is empty." (package sdk)
func emptyInput(c *scene) { c.instance().prints(c.samples.Input, "0\n") }

// "Env is added to the environment of every execution." (CreateRequest)
func instanceEnvironment(c *scene) {
	req := c.createRequest(c.language)
	req.Env = map[string]string{"PROVIDERTEST": "of the instance"}
	made := c.create(req)
	for range 2 {
		made.prints(c.samples.Value, "of the instance")
	}
}

// "Env is added to the instance's environment for this execution."
// (ExecuteRequest)
func executionEnvironment(c *scene) { c.instance().valueArrives("of the execution") }

// The same: for this one and no other.
func environmentEnds(c *scene) {
	req := c.createRequest(c.language)
	req.Env = map[string]string{"PROVIDERTEST": "of the instance"}
	in := c.create(req)
	in.valueArrives("of the execution")
	in.prints(c.samples.Value, "of the instance")
}

// The same: a value is text and nothing else.
func strangeEnvironment(c *scene) {
	in := c.instance()
	for _, value := range []string{
		"", `"double" and 'single' quotes`, "$HOME ${PATH} $(in.ID) `in.ID`", `back\slash \n \0 %s %d`, "two\nlines", "Grüße, 世界 🎈", "a=b=c; d & e | f > g #h", strings.Repeat("x", 10_000),
	} {
		in.valueArrives(value)
	}
}

func (in instance) valueArrives(value string) {
	req := in.request(in.code(in.samples.Value))
	req.Env = map[string]string{"PROVIDERTEST": value}
	got := in.execute(req)
	got.succeeded()
	equal(in, got.stdout, value, "the variable as the code sees it")
}

// "files under /workspace stay for the life of the instance" (package sdk)
func filesStay(c *scene) {
	in := c.instance()
	in.prints(c.samples.Read, "absent")
	in.run(c.samples.Write).succeeded()
	in.prints(c.samples.Read, "kept")
}

// The same: it is where relative names begin.
func startsInWorkspace(c *scene) { c.instance().prints(c.samples.Workspace, "same") }

// "variables do not" stay; "Code runs as a fresh interpreter process."
// (package sdk)
func variablesGo(c *scene) {
	in := c.instance()
	in.run(c.samples.SetVariable).succeeded()
	in.prints(c.samples.GetVariable, "absent")
}

// "Duration is the wall-clock time that the code ran." (ExecuteResult)
func durations(c *scene) {
	in := c.instance()
	started := time.Now()
	got := in.run(c.samples.Hello)
	took := time.Since(started)
	c.check(got.Duration > 0 && got.Duration <= took, "the duration is %v; the whole call took %v", got.Duration, took)
	req := in.request(c.code(c.samples.Wait))
	req.Timeout = time.Second
	if got = c.execute(req); got.Duration < 900*time.Millisecond {
		c.fail("the duration of code that was stopped after a second is %v", got.Duration)
	}
}

// Code is of any length that a request may have.
func longCode(c *scene) {
	if c.language == sdk.Bash || c.language == sdk.Python || c.language == sdk.JavaScript {
		comment := "#"
		if c.language == sdk.JavaScript {
			comment = "//"
		}
		padding := strings.Repeat(comment+strings.Repeat(" x", 100)+"\n", 1500)
		c.instance().prints(padding+c.samples.Hello, "hello\n")
		return
	}
	c.skip("it is not known how comments look in %s", c.language)
}

// "StatusOutOfMemory: killed at its memory limit" (Status)
func outOfMemory(c *scene) {
	c.needMemoryLimit()
	got := c.instance().run(c.samples.Memory)
	if got.Status != sdk.StatusOutOfMemory {
		got.failedInCode() // the language noticed first
	}
	c.check(got.ExitCode != 0, "the exit code of code that ran out of memory is 0")
}

// "the instance stays usable" (Provider.Execute)
func goesOnAfterMemory(c *scene) {
	c.needMemoryLimit()
	in := c.instance()
	in.run(c.samples.Memory)
	in.prints(c.samples.Hello, "hello\n")
}

func (c *scene) needMemoryLimit() {
	if c.suite.memoryLimit == 0 {
		c.skip("nobody said how much memory an instance may use")
	}
}
