package codepolicy_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/javascript"
)

func defaultPolicy(t testing.TB, change func(*codepolicy.Settings)) codepolicy.Policy {
	t.Helper()
	settings := codepolicy.Settings{
		Mode:           codepolicy.Enforce,
		BlockedImports: codepolicy.DefaultBlockedImports(),
		BlockedCalls:   codepolicy.DefaultBlockedCalls(),
	}
	if change != nil {
		change(&settings)
	}
	policy, err := settings.Policy()
	assert.NilError(t, err)
	return policy
}

func analyse(policy codepolicy.Policy, code string) []codepolicy.Finding {
	return policy.JavaScriptFindings(javascript.Parse(code))
}

// rulesAt tells findings apart as "line:rule".
func rulesAt(findings []codepolicy.Finding) []string {
	list := []string{}
	for _, f := range findings {
		list = append(list, fmt.Sprintf("%d:%s", f.Line, f.Rule))
	}
	return list
}

func TestJavaScriptFindings(t *testing.T) {
	policy := defaultPolicy(t, nil)
	cases := []struct {
		name, code, want string // the first finding
	}{
		// What the six regular expressions of the original found.
		{"require with apostrophes", "require('child_process')", "1:javascript.import.child_process"},
		{"require with quotes", "const x = 1\nrequire(\"fs\")", "2:javascript.import.fs"},
		{"require with backquotes", "require(`worker_threads`)", "1:javascript.import.worker_threads"},
		{"eval", "eval('1')", "1:javascript.call.eval"},
		{"Function", "Function('return 1')()", "1:javascript.call.Function"},
		{"new Function", "new Function('return 1')()", "1:javascript.call.Function"},
		{"process.binding", "process.binding('fs')", "1:javascript.call.process.binding"},
		// What got around it.
		{"the node: prefix", "require('node:fs')", "1:javascript.import.fs"},
		{"a part of a module", "require('fs/promises')", "1:javascript.import.fs"},
		{"a computed module name", "require('f' + x)", "1:javascript.import.computed"},
		{"a module name in parts", "require('child' + '_' + 'process')", "1:javascript.import.child_process"},
		{"a module name with escapes", `require('\x66\u0073')`, "1:javascript.import.fs"},
		{"a module name with an octal escape", `require('\146s')`, "1:javascript.import.fs"},
		{"a module name over two lines", "require('f\\\ns')", "1:javascript.import.fs"},
		{"a module name in a template with parts", "require(`f${'s'}`)", "1:javascript.import.fs"},
		{"require with an escape in its name", `r\u0065quire('fs')`, "1:javascript.import.fs"},
		{"require by another name", "const r = require; r('fs')", "1:javascript.import.computed"},
		{"require passed on", "['fs'].map(require)", "1:javascript.import.computed"},
		{"require called by call", "require.call(null, 'fs')", "1:javascript.import.computed"},
		{"module.require", "module.require('fs')", "1:javascript.import.fs"},
		{"module's require in brackets", "module['require']('fs')", "1:javascript.import.fs"},
		{"process.mainModule.require", "process.mainModule.require('child_process')", "1:javascript.import.child_process"},
		{"process.mainModule taken out", "const {mainModule} = process", "1:javascript.call.process.mainModule"},
		{"require.main.require", "require.main.require('fs')", "1:javascript.import.fs"},
		{"Module._load", "module.constructor._load('fs')", "1:javascript.import.fs"},
		{"getBuiltinModule", "process.getBuiltinModule('fs')", "1:javascript.import.fs"},
		{"a require of one's own making", "import {createRequire} from 'module'\nconst r = createRequire(import.meta.url)", "1:javascript.import.module"},
		{"import statement", "import {readFileSync} from 'node:fs'", "1:javascript.import.fs"},
		{"import for its effects", "\nimport 'child_process'", "2:javascript.import.child_process"},
		{"export from", "export * from 'fs'", "1:javascript.import.fs"},
		{"dynamic import", "import('node:child_process').then(c => c.exec('ls'))", "1:javascript.import.child_process"},
		{"dynamic import within code", "const f = async () => { const c = await import('fs') }", "1:javascript.import.fs"},
		{"dynamic import of a computed name", "const f = n => import(n)", "1:javascript.import.computed"},
		{"eval by another name", "const e = eval\ne('1')", "1:javascript.call.eval"},
		{"indirect eval", "(0, eval)('1')", "1:javascript.call.eval"},
		{"eval of the global object", "globalThis.eval('1')", "1:javascript.call.eval"},
		{"eval of the global object in brackets", "global['ev' + 'al']('1')", "1:javascript.call.eval"},
		{"eval called by call", "eval.call(null, '1')", "1:javascript.call.eval"},
		{"a computed member of the global object", "globalThis[name]('1')", "1:javascript.attribute.computed"},
		{"a computed member of process", "process[name]('fs')", "1:javascript.attribute.computed"},
		{"process by another name", "const p = process; p.binding('fs')", "1:javascript.call.process.binding"},
		{"binding taken out of process", "const {binding: b} = process; b('fs')", "1:javascript.call.process.binding"},
		{"process of the global object", "globalThis.process.binding('fs')", "1:javascript.call.process.binding"},
		{"dlopen", "process.dlopen(m, 'x.node')", "1:javascript.call.process.dlopen"},
		{"the constructor's constructor", "[].constructor.constructor('return process')()", "1:javascript.attribute.constructor"},
		{"the constructor's constructor in brackets", "''['constructor']['constr' + 'uctor']('return 1')()", "1:javascript.attribute.constructor"},
		{"the constructor of a function", "(() => {}).constructor('return 1')()", "1:javascript.attribute.constructor"},
		{"the constructor of an async function", "const A = (async function () {}).constructor; new A('1')", "1:javascript.attribute.constructor"},
		{"the constructor of a prototype", "Object.getPrototypeOf(async () => {}).constructor('1')", "1:javascript.attribute.constructor"},
		{"the constructor of a variable", "f.constructor('return process')()", "1:javascript.attribute.constructor"},
		{"the constructor as a tag", "f.constructor`return process```", "1:javascript.attribute.constructor"},
		{"a vm", "require('vm').runInThisContext('1')", "1:javascript.import.vm"},
		{"with", "with (process) { binding('fs') }", "1:javascript.ambiguous"},
		{"code in an HTML comment of a module", "import x from 'x'; let y = 1; 0<!--y, import('fs')", "1:javascript.ambiguous"},
		{"code behind the end of an HTML comment", "let y = 1; y\n--> import('fs')", "2:javascript.ambiguous"},
		{"a division that looks like a regular expression", "globalThis.await = 1\nawait /require('fs')/g", "2:javascript.ambiguous"},
		{"a script that returns", "if (x) return\nrequire('fs')", "2:javascript.import.fs"},
		{"within a template", "`${require('fs')}`", "1:javascript.import.fs"},
		{"within a class", "class A { static { eval('1') } }", "1:javascript.call.eval"},
		{"within a default", "function f(x = eval('1')) {}", "1:javascript.call.eval"},
		{"in an optional call", "require?.('fs')", "1:javascript.import.fs"},
		{"code that does not parse", "let x = ;", "1:javascript.unparsable"},
		{"code that only Node parses", "let x = 010", "1:javascript.unparsable"},
		{"code that is too large to be parsed", strings.Repeat("x\n", 1<<18), "1:javascript.unparsable"},
		{"code that nests too deeply", strings.Repeat("(", 5000), "1:javascript.unparsable"},

		// What the original took for an attack, and other harmless code.
		{"words in a comment", "// eval(1) require('fs')\n/* Function() */", ""},
		{"words in a string", "const s = \"eval('1'); require('fs')\" + 'process.binding(1)' + `Function(1)`", ""},
		{"words in a regular expression", "const r = /eval(x)/; r.test('require(1)')", ""},
		{"harmless modules", "const path = require('path'), {x} = require('node:util'), y = require('./y.js'), z = require('lodash/fp')", ""},
		{"a harmless import", "import path from 'node:path'; export const x = path.join('a'); const u = await import('util')", ""},
		{"a method named eval", "model.eval(); const x = {eval() { return 1 }, Function: 1}; x.eval()", ""},
		{"a parameter named require", "define(function (require) { return require(name) })", ""},
		{"a variable named eval", "function f(module, process) { return process[module] }", ""},
		{"the type of anything", "typeof require === 'function' && typeof eval", ""},
		{"is it a function", "x instanceof Function || x.constructor === Function", ""},
		{"methods of functions", "Function.prototype.call.apply(f)", ""},
		{"the main idiom", "if (require.main === module) console.log(1)", ""},
		{"where a module is", "require.resolve('lodash')", ""},
		{"arguments and environment", "process.env[name] + process.argv[2] + process.memoryUsage().rss", ""},
		{"the name of a class", "new X().constructor.name", ""},
		{"another of the same class", "new this.constructor(1)", ""},
		{"a constructor", "class A extends B { constructor() { super() } }", ""},
		{"HTML in a string", "const html = '<!-- x -->' + `\n--> ${1}\n-->`", ""},
		{"an arrow of its own", "for (let i = 9; i --> 0;) {}", ""},
		{"exit", "process.exit(3)", ""},
		{"a regular expression that is awaited by a call", "const f = async () => { await g(/x/) }", ""},
		{"nothing", "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := rulesAt(analyse(policy, c.code))
			if c.want == "" {
				assert.DeepEqual(t, got, []string{})
				return
			}
			assert.Assert(t, len(got) > 0, "nothing was found")
			assert.Equal(t, got[0], c.want, "all: %v", got)
		})
	}
}

func TestAJavaScriptFindingSaysWhereItIs(t *testing.T) {
	code := "const a = 1\n  /* ü */ const fs = require('fs'), x = process.binding(a)\n\teval(a)"
	assert.DeepEqual(t, analyse(defaultPolicy(t, nil), code), []codepolicy.Finding{
		{Line: 2, Column: 30, Rule: "javascript.import.fs", Message: "import of fs"},
		{Line: 2, Column: 49, Rule: "javascript.call.process.binding", Message: "use of process.binding"},
		{Line: 3, Column: 2, Rule: "javascript.call.eval", Message: "use of eval"},
	})
}

func TestAnOperatorChoosesTheRulesForJavaScript(t *testing.T) {
	code := "require('fs'); require('fs/promises'); require('net'); eval('1'); fetch('x')"
	for name, c := range map[string]struct {
		change func(*codepolicy.Settings)
		want   []string
	}{
		"the default": {nil, []string{"1:javascript.import.fs", "1:javascript.import.fs", "1:javascript.call.eval"}},
		"others": {func(s *codepolicy.Settings) {
			s.BlockedImports, s.BlockedCalls = []string{"javascript:net"}, []string{"javascript:fetch"}
		}, []string{"1:javascript.import.net", "1:javascript.call.fetch"}},
		"an exception": {func(s *codepolicy.Settings) {
			s.AllowedRules = []string{"javascript.import.fs", "javascript.call.eval"}
		}, []string{}},
		"an exception for a part": {func(s *codepolicy.Settings) {
			s.AllowedRules = []string{"javascript.import.fs/promises", "javascript.call.eval"}
		}, []string{"1:javascript.import.fs"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.DeepEqual(t, rulesAt(analyse(defaultPolicy(t, c.change), code)), c.want)
		})
	}
}

func TestFindingsAreBounded(t *testing.T) {
	findings := analyse(defaultPolicy(t, nil), strings.Repeat("require('fs');\n", 1000))
	assert.Assert(t, is.Len(findings, codepolicy.MaxFindings))
	assert.Equal(t, findings[49].Line, 50)
	findings = analyse(defaultPolicy(t, nil), "import '"+`fs/`+strings.Repeat("ü", 1000)+"'")
	assert.Assert(t, len(findings[0].Message) <= 300)
	assert.Assert(t, utf8.ValidString(findings[0].Message))
}

func FuzzJavaScriptFindings(f *testing.F) {
	for _, seed := range []string{
		"require('fs')", `r\u{65}quire("\x66\163")`, "import x from 'fs'; export default class { static #x = eval }",
		"const {a: {b = 1}, ...c} = process, d = `${`${1}`}`", "await /x/ / 1 <!-- x\n--> y", "'\\u{110000}\\ud83d\\ude00'", "((((", "\x00\xff", "a?.[b]?.(c)`d`",
		"f.constructor.constructor``", "with(a)b", "createRequire(x)('fs')",
	} {
		f.Add(seed)
	}
	policy := defaultPolicy(f, nil)
	f.Fuzz(func(t *testing.T, code string) {
		for _, finding := range analyse(policy, code) {
			if finding.Line < 1 || finding.Line > strings.Count(code, "\n")+strings.Count(code, "\r")+strings.Count(code, "\u2028")+strings.Count(code, "\u2029")+1 || finding.Column < 1 {
				t.Errorf("a finding at an impossible place: %v", finding)
			}
			if !utf8.ValidString(finding.Message) || finding.Rule == "" {
				t.Errorf("a finding that cannot be told: %q", finding)
			}
		}
	})
}
