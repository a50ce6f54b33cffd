package javascript_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/program/javascript"
)

func TestACallIsExpectedWhereMainIsDefinedAndLeftAlone(t *testing.T) {
	cases := map[string]struct {
		code string
		want bool
	}{
		"a function":                        {"function main() {}", true},
		"an async function":                 {"async function main() {}", true},
		"a constant arrow":                  {"const main = async () => 1", true},
		"a constant function expression":    {"const main = function () {}", true},
		"a function that calls itself":      {"function main(n) { return n ? main(n - 1) : 0 }", true},
		"an exported function":              {"export function main() {}", true},
		"an export of it by name":           {"function main() {}\nexport { main }", true},
		"an export of it as the default":    {"function main() {}\nexport default main", true},
		"an exported default function":      {"export default function main() {}", true},
		"a CommonJS export":                 {"async function main() {}\nmodule.exports = { main, other: 1 }", true},
		"a CommonJS export by name":         {"function main() {}\nexports.main = main", true},
		"an export beside a call":           {"function main() {}\nmodule.exports = { main, run: () => main() }", false},
		"an assignment to something else":   {"function main() {}\nglobalThis.x = main", false},
		"code around it":                    {"import fs from 'fs';\nconst x = 1;\nfunction main() { return x }\nconsole.log(x)", true},
		"main only in a comment and string": {"// main()\nconst s = 'main()'\nfunction main() { return s }", true},
		"a call":                            {"function main() {}\nmain()", false},
		"a call with then":                  {"async function main() {}\nmain().catch(console.error)", false},
		"a call within another function":    {"function main() {}\nfunction run() { main() }\nrun()", false},
		"an awaited call":                   {"async function main() {}\nawait main()", false},
		"a reference":                       {"function main() {}\nsetTimeout(main, 1)", false},
		"no main":                           {"console.log(1)", false},
		"main is not a function":            {"const main = 1", false},
		"a nested main":                     {"{ function inner() { function main() {} } }", false},
		"code that does not parse":          {"function main( {", false},
		"a script that may return before":   {"if (x) return\nfunction main() {}", false},
		"nothing":                           {"", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, expectsCall(c.code), c.want) })
	}
}

func expectsCall(code string) bool {
	program, _ := javascript.Parse(code)
	return program.ExpectsCall()
}

func TestCodeThatNestsWithoutEndDoesNotEndTheProcess(t *testing.T) {
	assert.Assert(t, !expectsCall(strings.Repeat("async(", 2<<20)+"main"))
}

func FuzzExpectsCall(f *testing.F) {
	for _, seed := range []string{"function main() {}", "const main = () => `${main}`", "export default class { static #x }", "((((((", "\x00\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, code string) { expectsCall(code) }) // it must not panic
}
