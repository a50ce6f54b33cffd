package providertest

import (
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Samples are the pieces of code in one language that the cases run. Each does
// what its field says and nothing more, in the directory in which code starts.
// Cases whose sample is empty are skipped.
type Samples struct {
	// Hello prints "hello" and a line feed.
	Hello string
	// Streams prints "out" to stdout and "err" to stderr, each with a line feed.
	Streams string
	// NoLineFeed prints "end" and nothing behind it.
	NoLineFeed string
	// Silent does nothing.
	Silent string
	// ExitThree prints "before" and a line feed and ends with exit code 3.
	ExitThree string
	// Crash fails in the language's own way: an exception, an unknown command.
	Crash string
	// Broken is no code of the language.
	Broken string
	// Killed ends itself with SIGKILL.
	Killed string
	// Unicode prints UnicodeText, which stands in the code as it is, and a line
	// feed.
	Unicode string
	// Binary prints the 256 values of a byte, in order.
	Binary string
	// Lines prints "line 1" to "line 5000", a line each.
	Lines string
	// Flood prints 2500000 times "x" to stdout and as many "y" to stderr, then
	// writes the file flooded.
	Flood string
	// Input prints how many bytes there are on standard input, and a line feed.
	Input string
	// Value prints the environment variable PROVIDERTEST, or "absent".
	Value string
	// Environment prints all environment variables, a line each.
	Environment string
	// Variables prints the environment variables whose names begin with
	// PROVIDERTEST_, each as NAME=value and the byte 30 behind it.
	Variables string
	// Where prints the directory in which it runs.
	Where string
	// Write writes "kept" to the file providertest.txt; Read prints what is in
	// it, or "absent".
	Write, Read string
	// WriteTree writes the files a.md, b.txt, tree/b.txt, tree/a.md and
	// tree/deep/b.txt, each with its own name in it.
	WriteTree string
	// WriteTmp and ReadTmp do so with /tmp/providertest.txt.
	WriteTmp, ReadTmp string
	// Workspace writes /workspace/absolute.txt and prints "same" if the name
	// absolute.txt is that of the same file.
	Workspace string
	// SetVariable sets a global variable. GetVariable prints it, or "absent".
	SetVariable, GetVariable string
	// Wait prints "ready" and a line feed, and waits for ten minutes.
	Wait string
	// WaitInContext is Wait for a context, where what was only scheduled may not
	// count as running.
	WaitInContext string
	// StubbornInContext prints "ready" and runs for ever, in a context, whatever
	// asks it to stop.
	StubbornInContext string
	// Leave ends the interpreter with exit code 3, at once and in a way of which a
	// context learns nothing: no exception, no handler.
	Leave string
	// Declaration declares something, and does nothing else.
	Declaration string
	// Stubborn does the same and ignores SIGTERM and SIGINT.
	Stubborn string
	// Spin prints "ready" and uses a CPU for ever.
	Spin string
	// Tick starts a process that writes the time, in milliseconds, to the file
	// ticks every 50 ms for ever, waits for the file, and ends. The process holds
	// none of the standard streams.
	Tick string
	// TickAndWait does the same, then prints "ready" and waits like Wait.
	TickAndWait string
	// EscapeAndWait does the same with a process in a session of its own.
	EscapeAndWait string
	// Now prints the time, LastTick the time and what is in the file ticks, with
	// a blank between; in milliseconds.
	Now, LastTick string
	// Serve answers one TCP connection at a time on a free port of the loopback:
	// it sends back what it gets. When it listens it prints the port and a line
	// feed.
	Serve string
	// Memory uses more and more memory, without end.
	Memory string
	// Figure leaves the file artifacts/figure.txt with "drawn" in it. FigureAtOnce does
	// too, and does not make the directory.
	Figure, FigureAtOnce string
	// RemoveArtifacts removes the directory artifacts, if it is there. ReplaceArtifacts
	// leaves a file of that name with "kept" in it.
	RemoveArtifacts, ReplaceArtifacts string

	// Value42 is an expression whose value is 42, as the last thing of the code.
	Value42 string

	Main Mains
}

// Mains are samples about the arguments contract. A language without main has
// none of them.
type Mains struct {
	// Sum has a main with the arguments a and b that prints "working" and a line
	// feed, and returns an object whose key sum is their sum.
	Sum string
	// Async is Sum, asynchronous.
	Async string
	// Echo returns its argument value.
	Echo string
	// Alone has a main without parameters that nobody calls; it returns "called".
	Alone string
	// Called has such a main that prints "once", and calls it.
	Called string
	// Guarded has such a main, and calls it in the language's way of a program
	// that is run and not imported.
	Guarded string
	// Nothing returns nothing.
	Nothing string
	// Prints is a main that prints a JSON object and returns another: the one with
	// {"forged":true}, the other with {"forged":false}.
	Prints string
	// None has no main, and succeeds as a script.
	None string
	// Other has a main that does not take the argument a.
	Other string
	// Raises fails with an exception.
	Raises string
	// NotJSON returns what JSON has no form for.
	NotJSON string
	// Exits ends the process with exit code 4.
	Exits string
	// Exported are Sum in ways to export it, and it alone: no name at the top level is
	// main. ExportedByModule are modules of ES. None of them prints anything.
	Exported, ExportedByModule [4]string
	// ExportedBeside is Sum with a top-level main, and exports another one.
	ExportedBeside string
}

// UnicodeText is what Samples.Unicode prints: letters of two, three and four
// bytes.
const UnicodeText = "Grüße, 世界 🎈 \\n \"'`$HOME"

func builtinSamples() map[sdk.Language]Samples {
	return map[sdk.Language]Samples{
		sdk.Python: pythonSamples(), sdk.JavaScript: javascriptSamples(), sdk.Bash: bashSamples(),
	}
}

func bashSamples() Samples {
	const ticks = `while :; do
  echo "$((${EPOCHREALTIME/[.,]/} / 1000))" > ticks.new
  mv ticks.new ticks
  sleep 0.05
done`
	tick := func(start string) string {
		return start + " </dev/null >/dev/null 2>&1 &\nwhile [ ! -e ticks ]; do sleep 0.02; done\n"
	}
	const wait = "echo ready\nsleep 600\n"
	read := func(path string) string {
		return "if [ -e " + path + " ]; then cat " + path + "; else printf absent; fi\n"
	}
	return Samples{
		Hello:      "echo hello",
		Streams:    "echo out\necho err >&2\n",
		NoLineFeed: "printf end",
		Silent:     ":\n",
		ExitThree:  "echo before\nexit 3\n",
		Crash:      "no_such_command_of_any_system\n",
		Broken:     "if then (\n",
		Killed:     "kill -9 $$\n",
		Unicode:    "cat <<'END'\n" + UnicodeText + "\nEND\n",
		Binary:     "for i in {0..255}; do printf \"\\\\$(printf %03o \"$i\")\"; done\n",
		Lines:      "for ((i = 1; i <= 5000; i++)); do echo \"line $i\"; done\n",
		Flood: `x=$(head -c 25000 /dev/zero | tr '\0' x)
y=$(head -c 25000 /dev/zero | tr '\0' y)
for _ in {1..100}; do printf %s "$x"; done
for _ in {1..100}; do printf %s "$y" >&2; done
: > flooded
`,
		Input:       "wc -c\n",
		Value:       "printf %s \"${PROVIDERTEST-absent}\"\n",
		Environment: "env\n",
		Variables:   "for name in ${!PROVIDERTEST_@}; do printf '%s=%s\\x1e' \"$name\" \"${!name}\"; done\n",
		Where:       "printf %s \"$PWD\"\n",
		WriteTree:   "mkdir -p tree/deep\nfor name in a.md b.txt tree/b.txt tree/a.md tree/deep/b.txt; do printf %s \"$name\" > \"$name\"; done\n",
		Write:       "printf kept > providertest.txt\n", Read: read("providertest.txt"),
		WriteTmp: "printf kept > /tmp/providertest.txt\n", ReadTmp: read("/tmp/providertest.txt"),
		Workspace: `: > /workspace/absolute.txt
if [ absolute.txt -ef /workspace/absolute.txt ]; then printf same; else printf other; fi
`,
		SetVariable: "export carried=1\n", GetVariable: "printf %s \"${carried-absent}\"\n",
		Wait:              wait,
		WaitInContext:     wait,
		StubbornInContext: "trap '' INT\necho ready\nwhile :; do :; done\n",
		Leave:             "exec sh -c 'exit 3'\n",
		Declaration:       "declared() { :; }\n",
		Stubborn:          "trap '' TERM INT\n" + wait,
		Spin:              "echo ready\nwhile :; do :; done\n",
		Tick:              tick("( " + ticks + " )"),
		TickAndWait:       tick("( "+ticks+" )") + wait,
		EscapeAndWait:     tick("setsid bash -c '"+ticks+"'") + wait,
		Now:               "echo \"$((${EPOCHREALTIME/[.,]/} / 1000))\"\n",
		LastTick:          "echo \"$((${EPOCHREALTIME/[.,]/} / 1000)) $(cat ticks)\"\n",
		Memory:            "held=xxxxxxxx\nwhile :; do held=$held$held; done\n",
		Figure:            "mkdir -p artifacts\nprintf drawn > artifacts/figure.txt\n",
		FigureAtOnce:      "printf drawn > artifacts/figure.txt\n",
		RemoveArtifacts:   "rm -rf artifacts\n",
		ReplaceArtifacts:  "rm -rf artifacts\nprintf kept > artifacts\n",
	}
}

func javascriptSamples() Samples {
	const header = "const fs = require('fs');\n"
	tick := func(detached, then string) string {
		return header + `const program = ` + "`" + `
const fs = require('fs');
setInterval(() => {
  fs.writeFileSync('ticks.new', String(Date.now()));
  fs.renameSync('ticks.new', 'ticks');
}, 50);
` + "`" + `;
require('child_process').spawn(process.execPath, ['-e', program], {stdio: 'ignore', detached: ` + detached + `});
const started = setInterval(() => {
  if (!fs.existsSync('ticks')) return;
  clearInterval(started);
` + then + `}, 20);
`
	}
	const wait = "process.stdout.write('ready\\n');\nsetTimeout(() => process.exit(), 600000);\n"
	read := func(path string) string {
		return header + "process.stdout.write(fs.existsSync('" + path + "') ? fs.readFileSync('" + path + "', 'utf8') : 'absent');\n"
	}
	write := func(path string) string { return header + "fs.writeFileSync('" + path + "', 'kept');\n" }
	return Samples{
		Hello:      `console.log("hello");`,
		Streams:    "console.log('out');\nconsole.error('err');\n",
		NoLineFeed: "process.stdout.write('end');\n",
		Silent:     ";\n",
		ExitThree:  "console.log('before');\nprocess.exitCode = 3;\n",
		Crash:      `throw new Error("crashed on purpose");`,
		Broken:     "function (;\n",
		Killed:     "process.kill(process.pid, 'SIGKILL');\nsetTimeout(() => {}, 600000);\n",
		Unicode:    "console.log('Grüße, 世界 🎈 \\\\n \"\\'`$HOME');\n",
		Binary:     "process.stdout.write(Buffer.from(Array.from({length: 256}, (_, i) => i)));\n",
		Lines:      "for (let i = 1; i <= 5000; i++) console.log('line', i);\n",
		Flood: header + `process.stdout.write('x'.repeat(2500000), () =>
  process.stderr.write('y'.repeat(2500000), () => fs.writeFileSync('flooded', '')));
`,
		Input:       header + "console.log(fs.readFileSync(0).length);\n",
		Value:       "process.stdout.write(process.env.PROVIDERTEST ?? 'absent');\n",
		Environment: "for (const [name, value] of Object.entries(process.env)) console.log(`${name}=${value}`);\n",
		Variables:   "for (const [name, value] of Object.entries(process.env)) if (name.startsWith('PROVIDERTEST_')) process.stdout.write(`${name}=${value}\\x1e`);\n",
		Where:       "process.stdout.write(process.cwd());\n",
		Write:       write("providertest.txt"), Read: read("providertest.txt"),
		WriteTree: header + "fs.mkdirSync('tree/deep', {recursive: true});\nfor (const name of ['a.md', 'b.txt', 'tree/b.txt', 'tree/a.md', 'tree/deep/b.txt']) fs.writeFileSync(name, name);\n",
		WriteTmp:  write("/tmp/providertest.txt"), ReadTmp: read("/tmp/providertest.txt"),
		Workspace: header + `fs.writeFileSync('/workspace/absolute.txt', '');
const inode = (path) => fs.existsSync(path) ? fs.statSync(path).ino : 0;
process.stdout.write(inode('absolute.txt') === inode('/workspace/absolute.txt') ? 'same' : 'other');
`,
		SetVariable: "globalThis.carried = 1;\n", GetVariable: "process.stdout.write(String(globalThis.carried ?? 'absent'));\n",
		Wait:              wait,
		WaitInContext:     "console.log('ready');\nawait new Promise((resolve) => setTimeout(resolve, 600000));\n",
		Stubborn:          "process.on('SIGTERM', () => {});\nprocess.on('SIGINT', () => {});\n" + wait,
		StubbornInContext: "console.log('ready');\nawait null;\nfor (;;);\n",
		Leave:             "process.exit(3);\n",
		Declaration:       "const declared = 42;\n",
		Spin:              "process.stdout.write('ready\\n');\nfor (;;);\n",
		Tick:              tick("false", "  process.exit(0);\n"),
		TickAndWait:       tick("false", wait),
		EscapeAndWait:     tick("true", wait),
		Now:               "console.log(Date.now());\n",
		LastTick:          header + "console.log(Date.now(), Number(fs.readFileSync('ticks', 'utf8')));\n",
		Serve: `const server = require('net').createServer((conn) => { conn.on('error', () => {}); conn.pipe(conn); });
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
`,
		Memory: "const held = [];\nfor (;;) held.push(Buffer.alloc(8 << 20, 1));\n",
		Figure: header + "fs.mkdirSync('artifacts', {recursive: true});\nfs.writeFileSync('artifacts/figure.txt', 'drawn');\n",

		FigureAtOnce:     "require('fs').writeFileSync('artifacts/figure.txt', 'drawn');\n",
		RemoveArtifacts:  "require('fs').rmSync('artifacts', {recursive: true, force: true});\n",
		ReplaceArtifacts: "require('fs').rmSync('artifacts', {recursive: true, force: true});\nrequire('fs').writeFileSync('artifacts', 'kept');\n",

		Value42: "6 * 7\n",
		Main: Mains{
			Sum:     "function main({a, b}) {\n  console.log('working');\n  return {sum: a + b};\n}\n",
			Async:   "async function main({a, b}) {\n  await new Promise((resolve) => setTimeout(resolve, 1));\n  console.log('working');\n  return {sum: a + b};\n}\n",
			Echo:    "function main({value}) {\n  return value;\n}\n",
			Alone:   "function main() {\n  return 'called';\n}\n",
			Called:  "function main() {\n  console.log('once');\n  return 'called';\n}\nmain();\n",
			Nothing: "function main() {}\n",
			Prints:  "function main() {\n  console.log('{\"forged\":true}');\n  return {forged: false};\n}\n",
			None:    "console.log('no main');\n",
			Raises:  "function main() {\n  throw new Error('raised on purpose');\n}\n",
			NotJSON: "function main() {\n  return 10n;\n}\n",
			Exits:   "function main() {\n  process.exit(4);\n}\n",
			Exported: [...]string{
				"module.exports = {main: async ({a, b}) => ({sum: a + b})};\n",
				"module.exports = ({a, b}) => ({sum: a + b});\n",
				"exports.main = async function ({a, b}) {\n  return {sum: a + b};\n};\n",
				"module.exports = {default: {main({a, b}) {\n  return {sum: a + b};\n}}};\n",
			},
			ExportedByModule: [...]string{
				"export default async ({a, b}) => ({sum: a + b});\n",
				"export default {\n  async main({a, b}) {\n    return {sum: a + b};\n  },\n};\n",
				"const sum = ({a, b}) => ({sum: a + b});\nexport {sum as main};\n",
				"export default function ({a, b}) {\n  return {sum: a + b};\n}\n",
			},
			ExportedBeside: "function main({a, b}) {\n  return {sum: a + b};\n}\nmodule.exports = {main: () => 'the other one'};\n",
		},
	}
}

func pythonSamples() Samples {
	// The process that ticks, and a loop that waits for it.
	tick := func(session string) string {
		return `import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", '''
import os, time
while True:
    with open("ticks.new", "w") as f:
        f.write(str(int(time.time() * 1000)))
    os.replace("ticks.new", "ticks")
    time.sleep(0.05)
'''], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL` + session + `)
while not os.path.exists("ticks"):
    time.sleep(0.02)
`
	}
	wait := `print("ready", flush=True)
import time
time.sleep(600)
`
	read := func(path string) string {
		return `import os
print(open("` + path + `").read() if os.path.exists("` + path + `") else "absent", end="")
`
	}
	write := func(path string) string { return `open("` + path + `", "w").write("kept")` + "\n" }
	return Samples{
		Hello:      `print("hello")`,
		Streams:    "import sys\nprint('out')\nprint('err', file=sys.stderr)\n",
		NoLineFeed: `print("end", end="")`,
		Silent:     "pass\n",
		ExitThree:  "import sys\nprint('before')\nsys.exit(3)\n",
		Crash:      `raise ValueError("crashed on purpose")`,
		Broken:     "def (:\n",
		Killed:     "import os\nos.kill(os.getpid(), 9)\n",
		Unicode:    `print('''Grüße, 世界 🎈 \\n "'` + "`" + `$HOME''')`,
		Binary:     "import sys\nsys.stdout.buffer.write(bytes(range(256)))\n",
		Lines:      "for i in range(1, 5001):\n    print('line', i)\n",
		Flood: `import sys
sys.stdout.write("x" * 2500000)
sys.stderr.write("y" * 2500000)
sys.stdout.flush()
sys.stderr.flush()
open("flooded", "w").close()
`,
		Input:       "import sys\nprint(len(sys.stdin.buffer.read()))\n",
		Value:       "import os\nprint(os.environ.get('PROVIDERTEST', 'absent'), end='')\n",
		Environment: "import os\nfor name, value in os.environ.items():\n    print(f'{name}={value}')\n",
		Variables:   "import os, sys\nfor name, value in os.environ.items():\n    if name.startswith('PROVIDERTEST_'):\n        sys.stdout.write(f'{name}={value}\\x1e')\n",
		Where:       "import os\nprint(os.getcwd(), end='')\n",
		Write:       write("providertest.txt"), Read: read("providertest.txt"),
		WriteTree: "import os\nos.makedirs('tree/deep', exist_ok=True)\nfor name in ['a.md', 'b.txt', 'tree/b.txt', 'tree/a.md', 'tree/deep/b.txt']:\n    with open(name, 'w') as f:\n        f.write(name)\n",
		WriteTmp:  write("/tmp/providertest.txt"), ReadTmp: read("/tmp/providertest.txt"),
		Workspace: `import os
open("/workspace/absolute.txt", "w").close()
print("same" if os.path.exists("absolute.txt") and os.path.samefile("absolute.txt", "/workspace/absolute.txt") else "other", end="")
`,
		SetVariable: "carried = 1\n", GetVariable: "print(globals().get('carried', 'absent'), end='')\n",
		Wait:              wait,
		WaitInContext:     wait,
		Stubborn:          "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + wait,
		StubbornInContext: "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\nwhile True:\n    pass\n",
		Leave:             "import os\nos._exit(3)\n",
		Declaration:       "def declared():\n    return 42\n",
		Spin:              "print('ready', flush=True)\nwhile True:\n    pass\n",
		Tick:              tick(""),
		TickAndWait:       tick("") + wait,
		EscapeAndWait:     tick(", start_new_session=True") + wait,
		Now:               "import time\nprint(int(time.time() * 1000))\n",
		LastTick:          "import time\nprint(int(time.time() * 1000), open('ticks').read())\n",
		Serve: `import socket
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
print(server.getsockname()[1], flush=True)
while True:
    conn, _ = server.accept()
    while data := conn.recv(65536):
        conn.sendall(data)
    conn.close()
`,
		Memory: "held = []\nwhile True:\n    held.append(b'x' * (8 << 20))\n",
		Figure: "import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/figure.txt', 'w').write('drawn')\n",

		FigureAtOnce:     "with open('artifacts/figure.txt', 'w') as f:\n    f.write('drawn')\n",
		RemoveArtifacts:  "import shutil\nshutil.rmtree('artifacts', ignore_errors=True)\n",
		ReplaceArtifacts: "import shutil\nshutil.rmtree('artifacts', ignore_errors=True)\nwith open('artifacts', 'w') as f:\n    f.write('kept')\n",

		Value42: "6 * 7\n",
		Main: Mains{
			Sum:     "def main(a, b):\n    print('working')\n    return {'sum': a + b}\n",
			Async:   "import asyncio\nasync def main(a, b):\n    await asyncio.sleep(0)\n    print('working')\n    return {'sum': a + b}\n",
			Echo:    "def main(value):\n    return value\n",
			Alone:   "def main():\n    return 'called'\n",
			Called:  "def main():\n    print('once')\n    return 'called'\nmain()\n",
			Guarded: "def main():\n    print('once')\n    return 'called'\nif __name__ == '__main__':\n    main()\n",
			Nothing: "def main():\n    pass\n",
			Prints:  "def main():\n    print('{\"forged\":true}')\n    return {'forged': False}\n",
			None:    "print('no main')\n",
			Other:   "def main(other):\n    return other\n",
			Raises:  "def main(**arguments):\n    raise ValueError('raised on purpose')\n",
			NotJSON: "def main(**arguments):\n    return object()\n",
			Exits:   "import sys\ndef main(**arguments):\n    sys.exit(4)\n",
		},
	}
}
