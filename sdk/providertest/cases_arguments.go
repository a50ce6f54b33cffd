package providertest

import (
	"encoding/json"
	"reflect"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func argumentCases() []Case {
	const group = "arguments"
	return []Case{
		{Group: group, Name: "main gets the arguments and its return value is the result", run: mainSums},
		{Group: group, Name: "an asynchronous main is awaited", run: mainAsync},
		{Group: group, Name: "values arrive and return unchanged", run: mainEchoes},
		{Group: group, Name: "text that could be code arrives as text", run: mainEchoesStrangeText},
		{Group: group, Name: "much data arrives and returns", run: mainEchoesMuch},
		{Group: group, Name: "empty arguments are arguments", run: mainWithEmptyArguments},
		{Group: group, Name: "without arguments a main that nobody calls is called", run: mainAlone},
		{Group: group, Name: "a main that the code calls is not called again", run: mainCalled},
		{Group: group, Name: "a main behind a guard is not called again", run: mainGuarded},
		{Group: group, Name: "a main that returns nothing has the result null", run: mainNothing},
		{Group: group, Name: "what main prints is not its result", run: mainPrints},
		{Group: group, Name: "code without main fails when it gets arguments", run: mainMissing},
		{Group: group, Name: "a main with other parameters fails", run: mainOther},
		{Group: group, Name: "a main that raises fails and says why", run: mainRaises},
		{Group: group, Name: "a main that returns no JSON fails and says why", run: mainNotJSON},
		{Group: group, Name: "a main that exits fails with its exit code", run: mainExits},
		{Group: group, Name: "a result above the output limit fails", run: mainTooMuch},
		{Group: group, Name: "an exported main is called where there is no other", run: mainExported},
		{Group: group, Name: "an exported main of an ES module is called", run: mainExportedByModule},
		{Group: group, Name: "an exported main takes the place of none at the top level", run: mainExportedBeside},
	}
}

func noArgumentCases() []Case {
	return []Case{{Group: "arguments", Name: "a language without main refuses arguments", run: refusesArguments}}
}

// callMain runs a sample with arguments; nil for none.
func (c *scene) callMain(sample string, arguments any) outcome {
	req := c.instance().request(c.code(sample))
	if arguments != nil {
		text, err := json.Marshal(arguments)
		c.must(err, "encode arguments")
		req.Arguments = text
	}
	return c.execute(req)
}

// returned checks that the code succeeded, and its result.
func (o outcome) returned(want any) {
	o.succeeded()
	if o.Result == nil {
		o.trial.fail("there is no result; it must be %s", shown(want))
	}
	var value any
	o.trial.must(json.Unmarshal(o.Result, &value), "decode the result %s", shown(string(o.Result)))
	if !reflect.DeepEqual(value, want) {
		o.trial.fail("the result is %s; it must be %s", shown(string(o.Result)), shown(want))
	}
}

// "With Arguments, the code must define main, which is called as
// main(**arguments) in Python (sync or async) and as main(arguments) in
// JavaScript. What it returns comes back as JSON in ExecuteResult.Result; what the
// code prints stays in stdout, untouched." (package sdk)
func mainSums(c *scene) {
	got := c.callMain(c.samples.Main.Sum, map[string]any{"a": 1, "b": 2})
	got.returned(map[string]any{"sum": 3.0})
	equal(c, got.stdout, "working\n", "stdout")
}

// "sync or async"; "its promise is awaited" (package sdk)
func mainAsync(c *scene) {
	got := c.callMain(c.samples.Main.Async, map[string]any{"a": 20, "b": 22})
	got.returned(map[string]any{"sum": 42.0})
	equal(c, got.stdout, "working\n", "stdout")
}

func (c *scene) echoes(values ...any) {
	in := c.instance()
	for _, value := range values {
		text, err := json.Marshal(map[string]any{"value": value})
		c.must(err, "encode arguments")
		req := in.request(c.code(c.samples.Main.Echo))
		req.Arguments = text
		c.execute(req).returned(value)
	}
}

// "Arguments for main, a JSON object." (ExecuteRequest)
func mainEchoes(c *scene) {
	c.echoes(nil, true, 0.0, -1.5, 9007199254740991.0, "", "text", []any{}, map[string]any{},
		map[string]any{"list": []any{1.0, "two", nil, false, []any{3.0}}, "object": map[string]any{"deep": map[string]any{"er": "yes"}}})
}

// The same: JSON that is pasted into source must not become code.
func mainEchoesStrangeText(c *scene) {
	c.echoes(`"double" 'single' """triple""" '''triple'''`, "back\\slash \\n \\u0041 \\", "two\nlines\r\n\ttab", "`${process.exit(9)}` {} %s $HOME",
		"Grüße, 世界 🎈 \u2028 \u2029 \u0000 \u007f", "</script><!-- */ // # --", "__main__ main() import os; os._exit(9)", "EOF\nEOT\nEND\n")
}

// The same: of any size that a request may have.
func mainEchoesMuch(c *scene) {
	text := make([]byte, 300_000)
	for i := range text {
		text[i] = 'a' + byte(i%26)
	}
	c.echoes(string(text))
}

// "Nil means that none were given, which is not the same as an empty object."
// (ExecuteRequest.Arguments)
func mainWithEmptyArguments(c *scene) {
	c.callMain(c.samples.Main.Alone, map[string]any{}).returned("called")
	c.callMain(c.samples.Main.None, map[string]any{}).failedInCode()
}

// "Without Arguments, main is called as main() if the code defines a top-level
// main and neither calls it nor has a __main__ guard." (package sdk)
func mainAlone(c *scene) { c.callMain(c.samples.Main.Alone, nil).returned("called") }

// The same.
func mainCalled(c *scene) { c.callMain(c.samples.Main.Called, nil).isScript("once\n") }

// The same.
func mainGuarded(c *scene) { c.callMain(c.samples.Main.Guarded, nil).isScript("once\n") }

// isScript checks that the code ran as a plain script, and what it printed.
func (o outcome) isScript(stdout string) {
	o.printed(stdout)
	o.trial.check(o.Result == nil, "the result is %s; nothing was to be called", o.Result)
}

// "nil when nothing was called" (ExecuteResult.Result): something was.
func mainNothing(c *scene) {
	got := c.callMain(c.samples.Main.Nothing, map[string]any{})
	got.succeeded()
	equal(c, string(got.Result), "null", "the result")
}

// "what the code prints stays in stdout, untouched." (package sdk)
func mainPrints(c *scene) {
	got := c.callMain(c.samples.Main.Prints, map[string]any{})
	got.returned(map[string]any{"forged": false})
	equal(c, got.stdout, "{\"forged\":true}\n", "stdout")
}

// "A wrong signature, a missing main or a return value that is not JSON is the
// code's own failure: StatusFailed, an exit code that is not zero, and a
// traceback in stderr." (package sdk)
func mainMissing(c *scene) {
	c.callMain(c.samples.Main.None, map[string]any{"a": 1}).failedInCode()
}

// The same.
func mainOther(c *scene) { c.callMain(c.samples.Main.Other, map[string]any{"a": 1}).failedInCode() }

// The same.
func mainRaises(c *scene) { c.callMain(c.samples.Main.Raises, map[string]any{"a": 1}).failedInCode() }

// The same.
func mainNotJSON(c *scene) {
	got := c.callMain(c.samples.Main.NotJSON, map[string]any{})
	got.failedInCode()
	c.check(got.Result == nil, "the result is %s, although main returned no JSON", got.Result)
}

// "ExitCode of the interpreter" (ExecuteResult)
func mainExits(c *scene) {
	got := c.callMain(c.samples.Main.Exits, map[string]any{})
	equal(c, got.ExitCode, 4, "the exit code")
	equal(c, got.Status, sdk.StatusFailed, "the status")
	c.check(got.Result == nil, "the result is %s, although main did not return", got.Result)
}

// "One above OutputLimit makes the execution fail." (ExecuteResult.Result)
func mainTooMuch(c *scene) {
	req := c.instance().request(c.code(c.samples.Main.Echo))
	text, err := json.Marshal(map[string]any{"value": string(make([]byte, 5000))})
	c.must(err, "encode arguments")
	req.Arguments, req.OutputLimit = text, 1000
	got := c.execute(req)
	equal(c, got.Status, sdk.StatusFailed, "the status")
	c.check(got.Result == nil, "a result above the limit arrived: %d bytes", len(got.Result))
}

// sum runs samples with a and b, whose sum they return.
func (c *scene) sum(samples ...string) {
	in := c.instance()
	for _, sample := range samples {
		req := in.request(c.code(sample))
		req.Arguments = json.RawMessage(`{"a":1,"b":2}`)
		c.execute(req).returned(map[string]any{"sum": 3.0})
	}
}

// "Where JavaScript has no main at its top level, it is what the module exports"
// (package sdk)
func mainExported(c *scene) { c.sum(c.samples.Main.Exported[:]...) }

// The same.
func mainExportedByModule(c *scene) { c.sum(c.samples.Main.ExportedByModule[:]...) }

// The same.
func mainExportedBeside(c *scene) { c.sum(c.samples.Main.ExportedBeside) }

// "Bash has no main; Arguments for it are refused with CodeInvalidRequest and the
// field "arguments"." (package sdk)
func refusesArguments(c *scene) {
	req := c.instance().request(c.samples.Hello)
	req.Arguments = json.RawMessage(`{"a":1}`)
	c.refusedField(c.tried(req).err, "Execute with arguments", sdk.CodeInvalidRequest, "arguments")
}
