package esm_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/esm"
)

func TestModulesBecomeScripts(t *testing.T) {
	for code, want := range map[string]string{
		"import 'x'":                                        "await __import('x')",
		"import fs from 'fs';\nfs":                          "const {default: fs} = await __import('fs');\nfs",
		`import * as os from "node:os"`:                     `const os = await __import("node:os")`,
		"import { a, b as c, default as d } from 'x'; a":    "const {a, b: c, default: d} = await __import('x'); a",
		"import d, { a, } from 'x'":                         "const {default: d, a} = await __import('x')",
		"import d, * as n from 'x'":                         "const n = await __import('x'); const {default: d} = n",
		"import {\n  a,\n  b\n} from 'x'\nboom":             "const {a, b} = await __import('x')\n\n\n\nboom",
		"import j from './j.json' with { type: 'json' };":   "const {default: j} = await __import('./j.json', {with: {type:'json'}});",
		"const m = await import('x')":                       "const m = await __import('x')",
		"f(import ('x'), 1)":                                "f(__import ('x'), 1)",
		"o.import('x'); o?.import('x')":                     "o.import('x'); o?.import('x')",
		"'import fs from \"fs\"'":                           "'import fs from \"fs\"'",
		"// import a from 'x'\n1":                           "// import a from 'x'\n1",
		"`import ${import('x')} import`":                    "`import ${__import('x')} import`",
		"/import ('x')/.test(s)":                            "/import ('x')/.test(s)",
		"a / import('x') / b":                               "a / __import('x') / b",
		"x\nimport a from 'x'":                              "x\nconst {default: a} = await __import('x')",
		"if (x) { import a from 'x' }":                      "if (x) { import a from 'x' }",
		"export const a = 1; export function f() {}":        " const a = 1;  function f() {}",
		"export async function main() {}\nexport class A{}": " async function main() {}\n class A{}",
		"export default 1":                                  "export default 1",
		"export { a }":                                      "export { a }",
		"import.meta.url":                                   "import.meta.url",
		"import a, from 'x'":                                "import a, from 'x'",
		"import":                                            "import",
		"import {":                                          "import {",
		"import a from 'x' with":                            "const {default: a} = await __import('x', {with: })",
		"const important = 1":                               "const important = 1",
		"'unfinished import":                                "'unfinished import",
	} {
		assert.Check(t, is.Equal(esm.Script(code), want), code)
	}
	long := "import 'x';" + strings.Repeat(" ", 1<<20)
	assert.Check(t, esm.Script(long) == long, "what is too long stays as it is")
}

func FuzzScript(f *testing.F) {
	for _, seed := range []string{"import a, {b as c} from 'x' with {a: 'b'}", "export const a = `${import('y')}`", "/[/]import/ / 2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, code string) {
		script := esm.Script(code)
		assert.Assert(t, strings.Count(script, "\n") >= strings.Count(code, "\n"), "%q became %q", code, script)
	})
}
