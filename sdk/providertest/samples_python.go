package providertest

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
