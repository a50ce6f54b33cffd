package providertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func variableCases(languages []sdk.Language) []Case {
	const group = "variables"
	contexts := []sdk.Capability{sdk.CapabilityContexts}
	return slices.Concat(
		inLanguages(languages, []Case{
			{Group: group, Name: "any text arrives, of the instance and of the execution", run: arriving(variablesArrive, oddVariables)},
			{Group: group, Name: "long values arrive whole, of the instance and of the execution", run: arriving(variablesArrive, longVariables...)},
			{Group: group, Name: "code gets them, and nothing shows them", run: variablesAreNotShown},
			{Group: group, Name: "any text arrives in a context, of the instance, the context and the execution", run: arriving(variablesArriveInContext, oddVariables), needs: contexts},
			{Group: group, Name: "long values arrive whole in a context, of the instance, the context and the execution", run: arriving(variablesArriveInContext, longVariables...), needs: contexts},
			{Group: group, Name: "a context gets them, and nothing shows them", run: variablesAreNotShownByContext, needs: contexts},
		}),
		needing([]Case{
			{Group: group, Name: "any text arrives in a command, of the instance and of the command", run: arriving(variablesArriveInCommand, oddVariables)},
			{Group: group, Name: "long values arrive whole in a command, of the instance and of the command", run: arriving(variablesArriveInCommand, longVariables...)},
		}, sdk.CapabilityCommands),
	)
}

// variables are those of a scope, with a word in their values.
type variables func(scope, word string) map[string]string

// arriving checks that the first of these variables arrive. Where they are refused as too
// long, the next must, and the last may not be refused.
func arriving(arrive func(*scene, variables) error, those ...variables) func(*scene) {
	return func(c *scene) {
		for i, env := range those {
			err := arrive(c, env)
			if err == nil {
				return
			}
			if i == len(those)-1 {
				c.must(err, "set variables")
			}
			e := c.refusal(err, "what has long variables", []sdk.Code{sdk.CodeInvalidRequest})
			c.check(e.Field == "env" || strings.HasPrefix(e.Field, "env."), "what has long variables was refused, but the field is %q: it must be env, or env. and a name", e.Field)
		}
	}
}

// The lengths of long values, in bytes. Linux takes a variable of 128 KiB at most, with
// its name.
const (
	longValue     = 100_000
	promisedValue = 32 << 10
)

// "One of up to 32 KiB always does. Refuse a longer one that cannot." (CreateRequest.Env)
var longVariables = []variables{
	func(scope, word string) map[string]string { return longOf(scope, word, longValue) },
	func(scope, word string) map[string]string { return longOf(scope, word, promisedValue) },
}

// longOf is a variable of a scope, and one of all of them. Every line of a value is
// another, so that none can be missed, come twice or change places.
func longOf(scope, word string, length int) map[string]string {
	var text strings.Builder
	for line := 0; text.Len() < length; line++ {
		fmt.Fprintf(&text, "%d it's \"%s\" \\n `$HOME` 世界\n", line, word)
	}
	end := " " + word
	value := strings.ToValidUTF8(text.String()[:length-len(end)], "?")
	value += strings.Repeat(".", length-len(end)-len(value)) + end
	return map[string]string{"PROVIDERTEST_OF_ALL": scope + value[len(scope):], "PROVIDERTEST_" + scope + "_LONG": value}
}

// oddVariables are variables whose values could be taken for something else, by a shell,
// an interpreter or a format. A word stands in each that is not empty.
func oddVariables(scope, word string) map[string]string {
	values := map[string]string{
		"EMPTY":     "",
		"QUOTES":    `it's "WORD" in ` + "`ticks` ''' \"\"\"",
		"LINES":     "one\nWORD\r\n\n\tthree\n",
		"BACKSLASH": `C:\temp\new\WORD \x41 \u0041 \`,
		"DOLLAR":    `$HOME ${HOME} $(id) $$ WORD $`,
		"SIGNS":     `%s %d %% {} {0} #{1} !! * ? ~ & | ; < > WORD = , / # //`,
		"LETTERS":   "Grüße, 世界 🎈 WORD \u2028 \u0301",
		"CODE":      `'; process.exit(9); import os; os._exit(9) # WORD`,
		"JSON":      `{"a": ["WORD", null]}`,
		"BLANKS":    "  WORD \t ",
	}
	env := map[string]string{"PROVIDERTEST_OF_ALL": "it's " + scope + " " + word}
	for name, value := range values {
		env["PROVIDERTEST_"+scope+"_"+name] = strings.ReplaceAll(value, "WORD", word)
	}
	return env
}

// instanceWith makes an instance with variables.
func (c *scene) instanceWith(env map[string]string) instance {
	made, err := c.tryInstance(env)
	c.must(err, "create an instance with variables")
	return made
}

func (c *scene) tryInstance(env map[string]string) (instance, error) {
	c.someLanguage()
	req := c.createRequest(c.language)
	req.Env = env
	return c.tryCreate(req)
}

// hasVariables checks what Samples.Variables has printed: variables, later ones before
// earlier ones.
func (c *scene) hasVariables(printed string, env ...map[string]string) {
	got, want := map[string]string{}, map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(printed, "\x1e"), "\x1e") {
		name, value, _ := strings.Cut(entry, "=")
		got[name] = value
	}
	for _, variables := range env {
		maps.Copy(want, variables)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, ok := got[name]
		c.check(ok, "code does not see the variable %s", name)
		at := agreeing(value, want[name])
		c.check(value == want[name], "the variable %s has %d bytes and must have %d; from byte %d on it is %s and must be %s",
			name, len(value), len(want[name]), at, shown(value[at:]), shown(want[name][at:]))
		delete(got, name)
	}
	c.check(len(got) == 0, "code sees variables that nobody has set: %s", shown(slices.Sorted(maps.Keys(got))))
}

// agreeing is how many bytes of two texts are the same, from their beginnings on.
func agreeing(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// "Env is added to the environment of every execution." (CreateRequest) "Env is added to
// the instance's environment for this execution." (ExecuteRequest) "A value may be any text
// without the byte 0, and arrives byte for byte." (CreateRequest)
//
// This and the next two return the error of a call that was not taken on.
func variablesArrive(c *scene, env variables) error {
	ofInstance, ofExecution := env("INSTANCE", randomWord()), env("EXECUTION", randomWord())
	made, err := c.tryInstance(ofInstance)
	if err != nil {
		return err
	}
	req := made.request(c.code(c.samples.Variables))
	req.Env = ofExecution
	got := c.tried(req)
	if got.err != nil {
		return got.err
	}
	got.succeeded()
	c.hasVariables(got.stdout, ofInstance, ofExecution)
	return nil
}

// The same. "Env is added to the instance's environment." (CreateContextRequest)
func variablesArriveInContext(c *scene, env variables) error {
	ofInstance, ofContext, ofExecution := env("INSTANCE", randomWord()), env("CONTEXT", randomWord()), env("EXECUTION", randomWord())
	in, err := c.tryInstance(ofInstance)
	if err != nil {
		return err
	}
	made, err := in.tryContext(func(req *sdk.CreateContextRequest) { req.Env = ofContext })
	if err != nil {
		in.newContext() // there may be none in this language
		return err
	}
	req := made.request(c.samples.Variables)
	req.Env = ofExecution
	got := c.tried(req)
	if got.err != nil {
		return got.err
	}
	got.succeeded()
	c.hasVariables(got.stdout, ofInstance, ofContext, ofExecution)
	got = made.run(c.samples.Variables)
	got.succeeded()
	c.hasVariables(got.stdout, ofInstance, ofContext)
	return nil
}

// The same. "Env is added to the instance's environment." (CommandRequest)
func variablesArriveInCommand(c *scene, env variables) error {
	ofInstance, ofCommand := env("INSTANCE", randomWord()), env("COMMAND", randomWord())
	made, err := c.tryInstance(ofInstance)
	if err != nil {
		return err
	}
	in := made.commands()
	started, err := in.tryStart([]string{"env", "-0"}, func(req *sdk.CommandRequest) { req.Env = ofCommand })
	if err != nil {
		return err
	}
	ended, out := in.follow(started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state of env -0")
	var ours strings.Builder
	for entry := range strings.SplitSeq(out.stdout.String(), "\x00") {
		if strings.HasPrefix(entry, "PROVIDERTEST_") {
			ours.WriteString(entry + "\x1e")
		}
	}
	c.hasVariables(ours.String(), ofInstance, ofCommand)
	return nil
}

// hides checks that a text has nothing of variables.
func (t *trial) hides(text, what string, words ...string) {
	for _, word := range words {
		t.check(!strings.Contains(text, word), "%s shows a variable: %s", what, shown(text))
	}
}

// hidesAll checks all that came of an execution.
func (o outcome) hidesAll(what string, words ...string) {
	o.trial.hides(o.stdout, "stdout of "+what, words...)
	o.trial.hides(o.stderr, "stderr of "+what, words...)
	o.trial.hides(fmt.Sprintf("%s %q %+v", o.Result, o.Detail, o.Findings), "the result of "+what, words...)
	for _, a := range o.artifacts {
		o.trial.hides(a.Name+" "+string(a.Data)+" "+a.Refused, "an artifact of "+what, words...)
	}
}

// "Values reach the code and nothing else: no output that the code did not print, no
// artifact, error, label or log has them." (CreateRequest.Env)
func variablesAreNotShown(c *scene) {
	ofInstance, ofExecution := randomWord(), randomWord()
	made := c.instanceWith(oddVariables("INSTANCE", ofInstance))
	for what, sample := range map[string]string{
		"code that does nothing": c.samples.Silent, "code that fails": c.samples.Crash, "code that cannot be read": c.samples.Broken,
		"a declaration": c.samples.Declaration, "code that prints": c.samples.Hello,
	} {
		req := made.request(c.code(sample))
		req.Env = oddVariables("EXECUTION", ofExecution)
		if c.claims(sdk.CapabilityArtifacts) {
			req.Artifacts = generous()
		}
		got := c.execute(req)
		got.hidesAll(what, ofInstance, ofExecution)
		c.check(len(got.artifacts) == 0, "%s has artifacts: %s", what, shown(got.artifacts))
	}
	c.hides(fmt.Sprintf("%+v %+v", made.Instance, c.listed()[made.ID]), "the instance", ofInstance, ofExecution)
	if c.plugin.Log != nil {
		for _, word := range []string{ofInstance, ofExecution} {
			c.check(!strings.Contains(c.plugin.Log(), word), "the log of the provider shows a variable")
		}
	}
}

// The same. What prepares an interpreter comes before the first code of a context, so each
// is the first of its own.
func variablesAreNotShownByContext(c *scene) {
	ofInstance, ofContext, ofExecution := randomWord(), randomWord(), randomWord()
	in := c.instanceWith(oddVariables("INSTANCE", ofInstance))
	for what, sample := range map[string]string{
		"a declaration": c.samples.Declaration, "code that fails": c.samples.Crash, "code that cannot be read": c.samples.Broken,
	} {
		made := in.newContext(func(req *sdk.CreateContextRequest) { req.Env = oddVariables("CONTEXT", ofContext) })
		req := made.request(c.code(sample))
		req.Env = oddVariables("EXECUTION", ofExecution)
		if c.claims(sdk.CapabilityArtifacts) {
			req.Artifacts = generous()
		}
		got := c.execute(req)
		got.hidesAll(what, ofInstance, ofContext, ofExecution)
		c.check(len(got.artifacts) == 0, "%s has artifacts: %s", what, shown(got.artifacts))
		c.hides(fmt.Sprintf("%+v", made.CodeContext), "the context", ofInstance, ofContext)
		c.must(c.DeleteContext(c.ctx, in.ID, made.ID), "delete the context")
	}
}
