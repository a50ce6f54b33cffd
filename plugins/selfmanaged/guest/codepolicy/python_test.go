package codepolicy_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
)

// pythonDriver analyses programs as the runner does, one JSON line each.
const pythonDriver = `
import ast, json, sys
sys.path.insert(0, sys.argv[1])
import code_policy
given = json.load(sys.stdin)
policy = code_policy.Policy(given["policy"])
for code in given["programs"]:
    tree = ast.parse(code)
    program = compile(tree, "main.py", "exec", dont_inherit=True)
    print(json.dumps(policy.analyse(tree, program, code)))
`

// analysePython runs the analyser in the machine's Python, which the sandboxes
// use too.
func analysePython(t *testing.T, policy codepolicy.Policy, programs ...string) [][]codepolicy.Finding {
	t.Helper()
	rules, err := policy.ForPython()
	assert.NilError(t, err)
	input, err := json.Marshal(map[string]any{"policy": json.RawMessage(rules), "programs": programs})
	assert.NilError(t, err)
	dir, err := filepath.Abs(".")
	assert.NilError(t, err)
	cmd := exec.CommandContext(t.Context(), "python3", "-I", "-B", "-c", pythonDriver, dir)
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	assert.NilError(t, err, "%s", stderr.String())
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	assert.Assert(t, is.Len(lines, len(programs)))
	all := make([][]codepolicy.Finding, len(lines))
	for i, line := range lines {
		assert.NilError(t, json.Unmarshal([]byte(line), &all[i]))
	}
	return all
}

func TestPythonFindings(t *testing.T) {
	cases := []struct {
		name, code, want string // the first finding
	}{
		// What the original found.
		{"import", "import os", "1:python.import.os"},
		{"import by another name", "import json, subprocess as sp", "1:python.import.subprocess"},
		{"from import", "x = 1\nfrom shutil import rmtree", "2:python.call.shutil.rmtree"},
		{"import of a part", "import os.path", "1:python.import.os"},
		{"import of a name", "from os import path", "1:python.import.os"},
		{"import of all", "from ctypes import *", "1:python.import.ctypes"},
		{"import within a function", "def f():\n    import socket", "2:python.import.socket"},
		{"http.client, which it meant to find", "import http.client", "1:python.import.http.client"},
		{"eval", "eval('1')", "1:python.call.eval"},
		{"exec", "exec('x = 1')", "1:python.call.exec"},
		{"compile", "compile('1', 'x', 'eval')", "1:python.call.compile"},
		{"__import__", "__import__('json')", "1:python.call.__import__"},
		{"input", "input()", "1:python.call.input"},
		{"globals", "globals()['x']", "1:python.call.globals"},
		{"a call in a lambda", "f = lambda: exec('1')", "1:python.call.exec"},
		{"a call in a list comprehension", "[eval(x) for x in xs]", "1:python.call.eval"},
		{"a call in a set comprehension", "{eval(x) for x in xs}", "1:python.call.eval"},
		{"a call in a dict comprehension", "{x: eval(x) for x in xs}", "1:python.call.eval"},
		{"a call that is yielded", "def f():\n    yield eval('1')", "2:python.call.eval"},
		{"a system file", "open('/etc/passwd').read()", "1:python.path.etc"},
		{"os.system", "import os as o\no.system('x')", "1:python.import.os"},
		// What got around it.
		{"importlib", "import importlib\nimportlib.import_module('os')", "2:python.import.os"},
		{"importlib by another name", "from importlib import import_module as load\nload('o' + 's')", "2:python.import.os"},
		{"importlib with a computed name", "import importlib\nimportlib.import_module(name)", "2:python.import.computed"},
		{"importlib by keyword", "import importlib\nimportlib.import_module(name='os')", "2:python.import.os"},
		{"importlib's machinery", "import importlib.machinery as m\nm.BuiltinImporter", "2:python.call.importlib.machinery"},
		{"posix", "import posix", "1:python.import.os"},
		{"from posix", "from posix import system", "1:python.call.os.system"},
		{"_socket", "import _socket", "1:python.import.socket"},
		{"_posixsubprocess", "import _posixsubprocess", "1:python.import.subprocess"},
		{"pathlib", "import pathlib\npathlib.Path('/etc/passwd').read_text()", "2:python.path.etc"},
		{"io.FileIO", "import io\nio.FileIO('/etc/passwd')", "2:python.path.etc"},
		{"a path that is not what it seems", "open('/workspace/../proc/1/environ')", "1:python.path.proc"},
		{"a path in bytes by keyword", "open(mode='rb', file=b'//etc/shadow')", "1:python.path.etc"},
		{"a module that another one has", "import random\nrandom._os", "2:python.import.os"},
		{"a module that a part of another one has", "import http.server\nhttp.server.shutil", "2:python.import.shutil"},
		{"a module taken out of another one", "from random import _os", "1:python.import.os"},
		{"a module from the dictionary of another one", "import random\nvars(random)['_os']", "2:python.import.os"},
		{"a module by getattr", "import random\ngetattr(random, '_os')", "2:python.import.os"},
		{"sys.modules", "import sys\nsys.modules['json']", "2:python.call.sys.modules"},
		{"sys.modules by another name", "import sys as s\nt = s\nt.modules", "3:python.call.sys.modules"},
		{"a builtin by another name", "e = eval\ne('1')", "1:python.call.eval"},
		{"a builtin passed on", "list(map(eval, ['1']))", "1:python.call.eval"},
		{"a builtin in a list", "[eval][0]('1')", "1:python.call.eval"},
		{"a builtin by its attribute", "eval.__call__('1')", "1:python.call.eval"},
		{"__import__ by another name", "i = __import__\ni('os')", "1:python.call.__import__"},
		{"__builtins__ as a dictionary", "__builtins__['eval']('1')", "1:python.attribute.__builtins__"},
		{"__builtins__ as a module", "__builtins__.eval('1')", "1:python.attribute.__builtins__"},
		{"getattr of the builtins", "getattr(__builtins__, 'ev' + 'al')('1')", "1:python.call.eval"},
		{"a computed attribute of a module", "import sys\ngetattr(sys, name)", "2:python.attribute.computed"},
		{"class traversal", "().__class__.__bases__[0].__subclasses__()", "1:python.attribute.__bases__"},
		{"class traversal by getattr", "getattr((), '__class__')\ngetattr(x, '__sub' + 'classes__')()", "2:python.attribute.__subclasses__"},
		{"the globals of a function", "(lambda: 0).__globals__", "1:python.attribute.__globals__"},
		{"the frame of a traceback", "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__.tb_frame", "4:python.attribute.tb_frame"},
		{"a loader", "__loader__.load_module('os')", "1:python.attribute.__loader__"},
		{"letters that are another one's", "ｅval('1')", "1:python.call.eval"},
		{"within an f-string", "f'{__import__(\"os\")}'", "1:python.call.__import__"},
		{"a subprocess of asyncio", "import asyncio\nasyncio.create_subprocess_exec('ls')", "2:python.call.asyncio.create_subprocess_*"},
		{"a function of that name that is never made", "if 0:\n    def eval(x): pass\neval('1')", "3:python.call.eval"},
		{"a variable of that name that is the builtin", "eval = eval\neval('1')", "2:python.call.eval"},
		{"a variable of that name that is perhaps imported", "if 0:\n    from json import loads as eval\neval('1')", "3:python.call.eval"},
		{"a variable of that name that comes too late", "def f():\n    eval('1')\nf()\neval = 1", "2:python.call.eval"},
		{"a variable of that name that has gone", "def eval(x): pass\ndel eval\neval('1')", "3:python.call.eval"},
		{"a variable of that name that only a class has", "class A:\n    eval = 1\n    def f(self):\n        return eval('1')", "4:python.call.eval"},
		{"a variable of that name that only a comprehension has", "def f():\n    [0 for eval in ()]\n    eval('1')", "3:python.call.eval"},
		{"where a comprehension begins", "[0 for eval in eval('[1]')]", "1:python.call.eval"},
		{"a decorator", "@eval\ndef f(): pass", "1:python.call.eval"},
		{"a default", "def f(x=eval('1')): pass", "1:python.call.eval"},
		{"an annotation", "def f(x: eval('1')): pass", "1:python.call.eval"},
		{"an assignment in an expression", "(e := eval)('1')", "1:python.call.eval"},
		{"an async function, which it did not look into", "async def f():\n    await eval('1')", "2:python.call.eval"},

		// What the original took for an attack, and other harmless code.
		{"constant arithmetic", "day = 24 * 60 * 60\nline = '-' * 40\ns = '%s' % 'x' + 'y'", ""},
		{"list.remove", "xs = [1]\nxs.remove(1)", ""},
		{"re.compile", "import re\nre.compile('x').match('y')", ""},
		{"pandas", "import pandas as pd\ndf = pd.DataFrame({'a': [1]})\ndf.rename(columns={}).eval('b = a')", ""},
		{"a model's eval", "model.eval()\nmodel.train().eval()", ""},
		{"files in the workspace", "with open('/workspace/a.txt', 'w') as f: f.write('x')\nopen('data.csv')\nopen('/tmp/x')\nopen('/dev/null')", ""},
		{"pathlib in the workspace", "from pathlib import Path\nPath('out').mkdir()\n(Path('/workspace') / 'x').write_text('x')", ""},
		{"images and archives", "from PIL import Image\nimport zipfile\nImage.open('x.png')\nzipfile.ZipFile('x').open('y')", ""},
		{"artifacts", "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.savefig('artifacts/x.png')", ""},
		{"getattr of an object", "getattr(x, 'name', None)\ngetattr(x, name)\nsetattr(x, 'a', 1)", ""},
		{"sys", "import sys\nprint(sys.version_info, sys.argv, sys.maxsize)\nsys.exit(0)", ""},
		{"asyncio", "import asyncio\nasync def main(): await asyncio.sleep(0)\nasyncio.run(main())", ""},
		{"a variable called input", "input = 'x'\nprint(input.strip())\nfor input in [1]: print(input)", ""},
		{"a parameter called input", "def f(input):\n    return [input(x) for x in input]", ""},
		{"a local variable called compile", "def f():\n    compile = str\n    return compile(1)", ""},
		{"a variable called input that may be one of two", "import sys\ntry:\n    input = sys.argv[1]\nexcept IndexError:\n    input = 'x'\nprint(input, input.upper())", ""},
		{"functions of one's own by assignment", "import functools\ncompile = functools.partial(int, base=2)\neval = lambda x: x\ncompile(eval('1'))", ""},
		{"functions imported by such names", "from numexpr import evaluate as eval\neval('1')", ""},
		{"a function of one's own", "def compile(x): return x\ncompile(1)", ""},
		{"methods with such names", "class A:\n    def eval(self): pass\n    def remove(self): pass\nA().eval()", ""},
		{"words in comments and strings", "# eval('1'); import os\ns = \"import os; eval('1')\"", ""},
		{"other parts of http", "import http\nfrom http import HTTPStatus\nhttp.HTTPStatus.OK", ""},
		{"harmless modules", "import json, math, datetime, collections, random, re, tempfile, signal, glob, typing, dataclasses\nrandom.shuffle([1])", ""},
		{"importlib for what is harmless", "import importlib, importlib.metadata\nimportlib.import_module('json')\nimportlib.metadata.version('x')", ""},
		{"thread pools", "from concurrent.futures import ThreadPoolExecutor", ""},
		{"an attribute that is called os", "self.os.remove('x')\nplatform = {'os': 1}\nplatform['os']", ""},
		{"the class of an object", "x.__class__.__name__, x.__dict__, type(x).__name__\nsuper().__init__()", ""},
		{"nothing", "", ""},
	}
	programs := make([]string, len(cases))
	for i, c := range cases {
		programs[i] = c.code
	}
	all := analysePython(t, defaultPolicy(t, nil), programs...)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := rulesAt(all[i])
			if c.want == "" {
				assert.DeepEqual(t, got, []string{})
				return
			}
			assert.Assert(t, len(got) > 0, "nothing was found")
			assert.Equal(t, got[0], c.want, "all: %v", got)
		})
	}
}

func TestAPythonFindingSaysWhereItIs(t *testing.T) {
	code := "x = 1\r\ns = 'ü'; import posix\n\feval(s)\n"
	assert.DeepEqual(t, analysePython(t, defaultPolicy(t, nil), code)[0], []codepolicy.Finding{
		{Line: 2, Column: 10, Rule: "python.import.os", Message: "import of posix, which is os"},
		{Line: 3, Column: 2, Rule: "python.call.eval", Message: "use of eval"},
	})
}

func TestAnOperatorChoosesTheRulesForPython(t *testing.T) {
	code := "import os.path, os, requests\nos.system('x')\nrequests.get('x')\neval('1')"
	for name, c := range map[string]struct {
		change func(*codepolicy.Settings)
		want   []string
	}{
		"the default": {nil, []string{"1:python.import.os", "2:python.call.os.system", "4:python.call.eval"}},
		"others": {func(s *codepolicy.Settings) {
			s.BlockedImports, s.BlockedCalls = []string{"python:requests"}, []string{"python:requests.*"}
		}, []string{"1:python.import.requests", "3:python.call.requests.*"}},
		"a module without its worst": {func(s *codepolicy.Settings) {
			s.AllowedRules = []string{"python.import.os", "python.call.eval"}
		}, []string{"2:python.call.os.system"}},
		"a part of a module": {func(s *codepolicy.Settings) {
			s.BlockedCalls, s.AllowedRules = nil, []string{"python.import.os.path"}
		}, []string{"1:python.import.os"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.DeepEqual(t, rulesAt(analysePython(t, defaultPolicy(t, c.change), code)[0]), c.want)
		})
	}
	onlyPath := defaultPolicy(t, func(s *codepolicy.Settings) { s.AllowedRules = []string{"python.import.os.path"} })
	got := analysePython(t, onlyPath, "import os.path as p\nfrom os.path import join\nfrom os import path", "from os import path, system")
	assert.DeepEqual(t, rulesAt(got[0]), []string{})
	assert.DeepEqual(t, rulesAt(got[1]), []string{"1:python.call.os.system", "1:python.import.os"})
}

func TestPythonThatIsHardToAnalyse(t *testing.T) {
	chain := "a = b\nb = a\n" + strings.Repeat("a = b = c\nb = a\n", 500)
	got := analysePython(t, defaultPolicy(t, nil),
		strings.Repeat("eval('1')\n", 1000),
		"import sys\n"+chain+"a.modules",
		"x = os"+strings.Repeat(".a", 900)+"\n(eval)",
		"eval("+strings.Repeat("'x' + ", 900)+"'x')",
	)
	assert.Assert(t, is.Len(got[0], codepolicy.MaxFindings))
	assert.Equal(t, got[0][49].Line, 50)
	assert.Assert(t, is.Len(got[1], 0))
	assert.Assert(t, len(got[2]) > 0)
	assert.Assert(t, len(got[3]) > 0)
}
