package providertest

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
