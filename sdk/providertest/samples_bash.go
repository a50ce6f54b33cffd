package providertest

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
