package program_test

import (
	"strings"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The contract of an execution, as the documentation of package sdk states it. The
// programs are those that the self-managed provider is tested with.
// numpy is not on every machine; this has what matters of its scalars and arrays.
const numpy = `
class scalar:
    def __init__(self, value): self.value = value
    def tolist(self): return [v.tolist() if isinstance(v, scalar) else v for v in self.value] if isinstance(self.value, list) else self.value
    def __hash__(self): return 1
scalar.__module__ = "numpy"
`

func TestAProgramDoesWhatTheCodeDoesInAFreshInterpreter(t *testing.T) {
	cases := []programCase{
		{
			name: "python main gets its arguments", language: sdk.Python, arguments: `{"name": "World", "count": 3}`,
			code:   `def main(name: str, count: int) -> dict: return {"message": f"Hello {name}!" * count}`,
			result: `{"message": "Hello World!Hello World!Hello World!"}`,
		},
		{
			name: "javascript main gets its arguments", language: sdk.JavaScript, arguments: `{"name": "World", "count": 3}`,
			code:   "function main(args) { return {message: `Hello ${args.name}!`.repeat(args.count)} }",
			result: `{"message":"Hello World!Hello World!Hello World!"}`,
		},
		{name: "a python script prints", language: sdk.Python, code: "print('hi', 1 + 1)", stdout: "hi 2\n"},
		{name: "a javascript script prints", language: sdk.JavaScript, code: "console.log('hi', 1 + 1)", stdout: "hi 2\n"},
		{name: "a bash script prints", language: sdk.Bash, code: "echo hi $((1 + 1))", stdout: "hi 2\n"},
		{name: "python exit code", language: sdk.Python, code: "print('x'); import sys; sys.exit(3)", exit: 3, stdout: "x\n"},
		{name: "javascript exit code", language: sdk.JavaScript, code: "console.log('x'); process.exit(3)", exit: 3, stdout: "x\n"},
		{name: "bash exit code", language: sdk.Bash, code: "echo x; exit 3", exit: 3, stdout: "x\n"},
		{name: "python's exit", language: sdk.Python, code: "exit(4)", exit: 4},
		{name: "a javascript exit code that is set", language: sdk.JavaScript, code: "process.exitCode = 4", exit: 4},
		{name: "exit 137 is an exit", language: sdk.Python, code: "raise SystemExit(137)", exit: 137},
		{
			name: "a python exception has a traceback with its source", language: sdk.Python, code: "def f():\n    raise ValueError('boom')\nf()", exit: 1,
			stderr: "Traceback (most recent call last):\n  File \"/workspace/main.py\", line 3, in <module>\n    f()\n  File \"/workspace/main.py\", line 2, in f\n    raise ValueError('boom')\nValueError: boom\n",
		},
		{name: "a python syntax error", language: sdk.Python, code: "x = 1\nprint(", exit: 1, stderr: "  File \"/workspace/main.py\", line 2\n    print("},
		{
			name: "a javascript exception has a stack without the runner", language: sdk.JavaScript, code: "function f() { throw new Error('boom') }\nf()", exit: 1,
			stderr: "/workspace/main.js:1\nfunction f() { throw new Error('boom') }\n                     ^\n\nError: boom\n    at f (/workspace/main.js:1:22)\n    at Object.<anonymous> (/workspace/main.js:2:1)\n",
		},
		{name: "a javascript syntax error", language: sdk.JavaScript, code: "let x = ;", exit: 1, stderr: "SyntaxError"},
		{name: "bash shows the line", language: sdk.Bash, code: "true\nnosuch", exit: 127, stderr: "line 2: nosuch"},
		{name: "main is called without arguments if nothing else does", language: sdk.Python, code: "def main():\n    return 7", result: "7"},
		{name: "javascript main is called without arguments if nothing else does", language: sdk.JavaScript, code: "const main = () => 7", result: "7"},
		{name: "main is not called twice", language: sdk.Python, code: "def main():\n    print('once')\nmain()", stdout: "once\n"},
		{name: "javascript main is not called twice", language: sdk.JavaScript, code: "function main() { console.log('once') }\nmain()", stdout: "once\n"},
		{name: "a guard is a plain script", language: sdk.Python, code: "def main():\n    print('once')\nif __name__ == '__main__':\n    main()", stdout: "once\n"},
		{name: "a guard does not call main when arguments do", language: sdk.Python, arguments: `{"x": 1}`, code: "def main(x):\n    return x\nif __name__ == '__main__':\n    main(5)", result: "1"},
		{name: "an async python main is awaited", language: sdk.Python, arguments: `{}`, code: "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return [1, None, True]", result: "[1, null, true]"},
		{name: "python code has an event loop of its own", language: sdk.Python, code: "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 5\nprint(asyncio.run(f()))", stdout: "5\n"},
		{name: "a javascript promise is awaited", language: sdk.JavaScript, arguments: `{}`, code: "async function main() { await null; return [1, null, true] }", result: "[1,null,true]"},
		{name: "a script is waited for", language: sdk.JavaScript, code: "setTimeout(() => console.log('late'), 30); Promise.resolve().then(() => console.log('soon'))", stdout: "soon\nlate\n"},
		{name: "javascript modules work", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "import path from 'node:path';\nconst two = await Promise.resolve(2);\nexport function main({a}) { return path.join(String(a * two), 'x') }", result: `"4/x"`},
		{name: "javascript exports work", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "module.exports = ({a}) => a * 2", result: "4"},
		{name: "an exported main that no other name has", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "module.exports = { main: async ({a}) => a * 2 }", result: "4"},
		{name: "an exported main by name", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "exports.main = ({a}) => a * 2", result: "4"},
		{name: "an exported default with a main", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "exports.default = { main: ({a}) => a * 2 }", result: "4"},
		{name: "a main at the top level comes before an exported one", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "const main = ({a}) => a * 2\nmodule.exports = { main: () => 5 }", result: "4"},
		{name: "a module's default is a function", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "export default async ({a}) => a * 2", result: "4"},
		{name: "a module's default is a main with a name", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "export default function main({a}) { return a * 2 }", result: "4"},
		{name: "a module's default has a main", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "export default { main: async ({a}) => a * 2 }", result: "4"},
		{name: "a module's constant is main", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "export const main = ({a}) => a * 2", result: "4"},
		{name: "a module exports another name as main", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "const double = ({a}) => a * 2\nexport { double as main }", result: "4"},
		{name: "exports without a main", language: sdk.JavaScript, arguments: `{}`, code: "module.exports = { double: (a) => a * 2 }", exit: 1, stderr: "must define a function main"},
		{name: "exports without arguments are left alone", language: sdk.JavaScript, code: "Object.defineProperty(exports, 'main', { get() { throw new Error('looked at') } })"},
		{name: "artifacts is there in python", language: sdk.Python, code: "import os\nopen('artifacts/x', 'w').close()\nos.makedirs('artifacts', exist_ok=True)\nprint(os.listdir('artifacts'))", stdout: "['x']\n"},
		{name: "artifacts is there in javascript", language: sdk.JavaScript, code: "const fs = require('fs');\nfs.writeFileSync('artifacts/x', '');\nconsole.log(fs.readdirSync('artifacts').length)", stdout: "1\n"},
		{name: "a script can import", language: sdk.JavaScript, arguments: `{}`, code: "async function main() { return (await import('node:path')).sep }", result: `"/"`},
		{name: "javascript output before an exit is whole", language: sdk.JavaScript, code: "console.log('x'.repeat(900000)); process.exit()", stdout: strings.Repeat("x", 900000) + "\n"},
		{name: "javascript output before a result is whole", language: sdk.JavaScript, arguments: `{}`, code: "function main() { console.log('x'.repeat(900000)); return 1 }", result: "1", stdout: strings.Repeat("x", 900000) + "\n"},
		{name: "a promise that nothing settles is a failure", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return new Promise(() => {}) }", exit: 13, stderr: "awaits something that never comes"},
		{name: "an exit while a promise is open is an exit", language: sdk.JavaScript, arguments: `{}`, code: "async function main() { await null; process.exit() }"},
		{name: "an exit in a timer is an exit", language: sdk.JavaScript, code: "setTimeout(() => process.exit(6), 1); setInterval(() => {}, 1000)", exit: 6},
		{name: "a javascript error shows its cause", language: sdk.JavaScript, arguments: `{}`, code: "function main() { throw new Error('outer', {cause: new Error('inner')}) }", exit: 1, stderr: "Error: outer\n    at main (/workspace/main.js:1:25) {\n  [cause]: Error: inner\n      at main"},
		{name: "an error that nobody catches", language: sdk.JavaScript, code: "setTimeout(() => { throw new Error('boom') }, 1)", exit: 1, stderr: "Error: boom\n"},
		{name: "a rejection that nobody catches", language: sdk.JavaScript, code: "Promise.reject(new Error('boom'))", exit: 1, stderr: "Error: boom\n"},
		{name: "a javascript error shows although console.error is gone", language: sdk.JavaScript, arguments: `{}`, code: "function main() { console.error = null; throw new Error('boom') }", exit: 1, stderr: "Error: boom\n    at main"},
		{name: "a module shows where it does not compile", language: sdk.JavaScript, code: "import fs from 'fs';\nlet x = ;", exit: 1, stderr: "let x = ;\n        ^\n"},
		{name: "a module shows where it throws", language: sdk.JavaScript, code: "import fs from 'fs';\nthrow new Error('boom');", exit: 1, stderr: "/workspace/main.js:2\nthrow new Error('boom');\n      ^\n"},
		{name: "the program leaves no file", language: sdk.JavaScript, code: "import fs from 'fs';\nsetTimeout(() => console.log(fs.readdirSync('.')), 1)", stdout: "[ 'artifacts' ]\n"},
		{name: "what sys.exit says is no output, even without sys.stderr", language: sdk.Python, code: "import sys\nsys.stderr = None\nsys.exit('bye')", exit: 1, stderr: "bye\n"},
		{name: "a python error in an async main shows the code's frames alone", language: sdk.Python, arguments: `{}`, code: "async def main():\n    raise ValueError('boom')", exit: 1, stderr: "Traceback (most recent call last):\n  File \"/workspace/main.py\", line 2, in main\n    raise ValueError('boom')\nValueError: boom\n"},
		{name: "a python syntax error of the compiler shows its line", language: sdk.Python, code: "x = 1\nawait x", exit: 1, stderr: "line 2\n    await x\n"},
		{name: "a traceback is no output, even without sys.stderr", language: sdk.Python, code: "import sys\nsys.stderr = None\nraise ValueError('boom')", exit: 1, stderr: "ValueError: boom\n"},
		{name: "arguments that nest deeper than python can", language: sdk.Python, arguments: `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", code: "def main(a): pass", exit: 1, stderr: "RecursionError"},
		{name: "python classes can be pickled", language: sdk.Python, arguments: `{}`, code: "import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\ndef main(): return pickle.loads(pickle.dumps(P(3))).x", result: "3"},
		{name: "python processes share work", language: sdk.Python, code: "import multiprocessing\ndef square(x): return x * x\ndef main():\n    with multiprocessing.get_context('fork').Pool(2) as p: return p.map(square, range(4))", result: "[0, 1, 4, 9]"},
		{name: "None is null", language: sdk.Python, arguments: `{}`, code: "def main(): pass", result: "null"},
		{name: "undefined is null", language: sdk.JavaScript, arguments: `{}`, code: "function main() {}", result: "null"},
		{name: "a timer left behind does not hold back the result", language: sdk.JavaScript, arguments: `{}`, code: "function main() { setInterval(() => {}, 1000); return 1 }", result: "1"},
		{name: "what main prints is not its result", language: sdk.Python, arguments: `{}`, code: "def main():\n    print('{\"forged\": true}')\n    return 1", result: "1", stdout: "{\"forged\": true}\n"},
		{name: "output without a line end stays so", language: sdk.Python, arguments: `{}`, code: "def main():\n    print('a', end='')\n    return 1", result: "1", stdout: "a"},
		{name: "main may close or replace its output", language: sdk.Python, arguments: `{}`, code: "import sys, os\ndef main():\n    print('a', flush=True)\n    sys.stdout = None\n    return 1", result: "1", stdout: "a\n"},
		{name: "main may close its output for good", language: sdk.Python, arguments: `{}`, code: "import os\ndef main():\n    print('a', flush=True)\n    os.close(1)\n    return 1", result: "1", stdout: "a\n", exit: 0},
		{name: "a child that a fork made has no say", language: sdk.Python, arguments: `{}`, code: "import os\ndef main():\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    return pid and 1", result: "1"},
		{name: "python returns what is not JSON", language: sdk.Python, arguments: `{}`, code: "def main(): return {1, 2}", exit: 1, stderr: "TypeError: main must return something that JSON can express"},
		{name: "python returns a number that is none", language: sdk.Python, arguments: `{}`, code: "def main(): return {'a': [1.5, float('nan')], 'b': (float('-inf'),), 2: None}", result: `{"a": [1.5, null], "b": [null], "2": null}`, stderr: "they are null in the result\n"},
		{name: "python returns keys that are no numbers", language: sdk.Python, arguments: `{}`, code: "def main(): return {float('nan'): 1, float('inf'): 2}", result: `{"nan": 1, "inf": 2}`},
		{name: "python returns what numpy has", language: sdk.Python, arguments: `{}`, code: numpy + "def main(): return {'n': scalar(3), 'a': scalar([scalar(1), 2.5]), scalar(4): scalar(float('nan'))}", result: `{"n": 3, "a": [1, 2.5], "4": null}`, stderr: "they are null in the result\n"},
		{name: "python returns what contains itself", language: sdk.Python, arguments: `{}`, code: "def main():\n    a = []\n    a.append(a)\n    return a", exit: 1, stderr: "TypeError: main must return something that JSON can express"},
		{name: "javascript returns what is not JSON", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return 10n }", exit: 1, stderr: "TypeError: main must return something that JSON can express"},
		{name: "javascript returns NaN", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return {a: NaN, b: [-Infinity, 1.5]} }", result: `{"a":null,"b":[null,1.5]}`, stderr: "they are null in the result\n"},
		{name: "python lacks main", language: sdk.Python, arguments: `{}`, code: "x = 1", exit: 1, stderr: "must define a function main"},
		{name: "javascript lacks main", language: sdk.JavaScript, arguments: `{}`, code: "let x = 1", exit: 1, stderr: "must define a function main"},
		{name: "wrong arguments", language: sdk.Python, arguments: `{"b": 1}`, code: "def main(a): return a", exit: 1, stderr: "TypeError: main() got an unexpected keyword argument 'b'"},
		{name: "arguments that look like code", language: sdk.Python, arguments: `{"a": "\"\"\"'; __import__('os')._exit(9) #\n\\", "b": null, "c": true}`, code: "def main(a, b, c): return [a, b, c]", result: `["\"\"\"'; __import__('os')._exit(9) #\n\\", null, true]`},
		{name: "javascript arguments that look like code", language: sdk.JavaScript, arguments: `{"a": "${process.exit(9)}` + "`" + `'\"\u2028</script>"}`, code: "function main({a}) { return a }", result: `"${process.exit(9)}` + "`" + `'\"` + "\u2028" + `</script>"`},
		{name: "sys.exit in main", language: sdk.Python, arguments: `{}`, code: "import sys\ndef main(): sys.exit(4)", exit: 4},
		{name: "sys.exit without a code in main is a success without a result", language: sdk.Python, arguments: `{}`, code: "import sys\ndef main(): sys.exit()"},
		{name: "exit hooks run", language: sdk.Python, code: "import atexit\natexit.register(print, 'bye')\nprint('hi')", stdout: "hi\nbye\n"},
		{name: "javascript exit hooks run", language: sdk.JavaScript, code: "process.on('exit', (c) => console.log('bye', c))\nconsole.log('hi')\nprocess.exitCode = 4", exit: 4, stdout: "hi\nbye 4\n"},
		{name: "an exit hook changes the exit code", language: sdk.JavaScript, code: "process.on('exit', () => { process.exitCode = 9 })", exit: 9},
		{name: "threads are waited for", language: sdk.Python, code: "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()\nprint('early')", stdout: "early\nlate\n"},
		{name: "a message as the exit code", language: sdk.Python, code: "raise SystemExit('sorry')", exit: 1, stderr: "sorry\n"},
		{name: "an exit code above 255", language: sdk.Python, code: "raise SystemExit(256 + 7)", exit: 7},
		{name: "an interrupt", language: sdk.Python, code: "raise KeyboardInterrupt", exit: 130, stderr: "KeyboardInterrupt"},
		{name: "unicode comes through", language: sdk.Python, arguments: `{"s": "héllo 世界 🎉"}`, code: "def main(s):\n    print(s)\n    return s", result: `"héllo 世界 🎉"`, stdout: "héllo 世界 🎉\n"},
		{name: "lone surrogates are escaped", language: sdk.Python, arguments: `{}`, code: `def main(): return "\ud800"`, result: `"\ud800"`},
		{name: "NUL bytes come through", language: sdk.Python, code: `print("a\0b")`, stdout: "a\x00b\n"},
		{name: "bytes that are no UTF-8 come through", language: sdk.Bash, code: `printf '\xff\xfe'`, stdout: "\xff\xfe"},
		{name: "empty code", language: sdk.Python, code: ""},
		{name: "empty javascript", language: sdk.JavaScript, code: ""},
		{name: "empty bash", language: sdk.Bash, code: ""},
		{name: "standard input is empty", language: sdk.Python, code: "import sys; print(repr(sys.stdin.read()))", stdout: "''\n"},
		{name: "there is nothing to input", language: sdk.Python, code: "try:\n    input('> ')\nexcept EOFError as e:\n    print(e)", stdout: "> EOF when reading a line\n"},
		{name: "standard input is empty in bash", language: sdk.Bash, code: "cat; echo end", stdout: "end\n"},
		{name: "environment in python", language: sdk.Python, env: map[string]string{"K": "v $x 'q'\n\"世\""}, code: "import os; print(os.environ['K'])", stdout: "v $x 'q'\n\"世\"\n"},
		{name: "environment in javascript", language: sdk.JavaScript, env: map[string]string{"K": "v`${x}`'q'\n\""}, code: "console.log(process.env.K)", stdout: "v`${x}`'q'\n\"\n"},
		{name: "environment in bash", language: sdk.Bash, env: map[string]string{"A": "it's\n\"x\" $y \\n `z`", "UID": "5"}, code: "echo \"$A\"\nnosuch", exit: 127, stdout: "it's\n\"x\" $y \\n `z`\n", stderr: "line 2: nosuch"},
		{name: "a file of the code's own replaces no module of the runner", language: sdk.Python, arguments: `{}`, code: "open('asyncio.py', 'w').write('boom(')\nopen('json.py', 'w').write('boom(')\nasync def main(): return 1", result: "1"},
		{name: "a large result", language: sdk.Python, arguments: `{}`, code: "def main(): return 'x' * 500000", result: `"` + strings.Repeat("x", 500000) + `"`},
		{name: "a large result in javascript", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return 'x'.repeat(500000) }", result: `"` + strings.Repeat("x", 500000) + `"`},
		{name: "a result above the limit", language: sdk.Python, arguments: `{}`, code: "def main(): return 'x' * 2000000", exit: 1, stderr: "more than the limit of 1048576"},
		{name: "a result above the limit in javascript", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return 'x'.repeat(2000000) }", exit: 1, stderr: "more than the limit of 1048576"},
		{name: "a line that only looks like a magic of IPython", language: sdk.Python, code: "x = '''\n%cd /\n!ls\n'''\nprint(len(x))", stdout: "11\n"},
		{name: "the end of a here-document is not the end of the code", language: sdk.Bash, code: "cat <<EOF\n'\"$(echo x)\nEOF\necho done", stdout: "'\"x\ndone\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}
