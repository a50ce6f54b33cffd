package program

import (
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/bash"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/javascript"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/returned"
)

var (
	//go:embed runner.py
	python []byte
	//go:embed runner.js
	javaScript []byte

	pythonRunner     = encode(slices.Concat(returned.Python(), []byte("\n\n"), python))
	javaScriptRunner = encode(slices.Concat([]byte("(() => {\n"), returned.JavaScript(), []byte("return (\n"), javaScript, []byte(");\n})()")))
)

// Options are what the execution itself does not say.
type Options struct {
	// Dir is the working directory of the code, and where it imports from. It is
	// made if it is not there, and artifacts/ in it. Empty stands for the one that the
	// interpreter has; bash always keeps that, and makes nothing.
	Dir string
}

// Program is one execution, made for a remote interpreter. Use it once.
type Program struct {
	// Source is what the interpreter is given. For Python and JavaScript it has ASCII
	// characters only; for bash it has the code in it as it is.
	Source string
	// Suffix of a file that holds Source: ".py", ".cjs" or ".sh".
	Suffix string

	language sdk.Language
	marker   string
	limit    int64
	calls    bool // whether main is to be called for sure
}

// ForProcess makes a program that is run by a process of its own, with the command
// that Command returns, with standard input empty (</dev/null). Its exit code is
// that of the code. Python and JavaScript remove the file as soon as they have read
// it, if they may.
//
// The error is CodeInvalidRequest for what no program can be made of, and
// CodeNotSupported for languages other than Python, JavaScript and Bash.
func ForProcess(req sdk.ExecuteRequest, options Options) (*Program, error) {
	if err := checkEnvironment(req.Env); err != nil {
		return nil, err
	}
	if req.Arguments != nil && !isObject(req.Arguments) {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "must be a JSON object")
	}
	p := &Program{language: req.Language, marker: newMarker(), limit: req.OutputLimit, calls: req.Arguments != nil}
	r := request{Code: req.Code, Env: req.Env, Limit: req.OutputLimit, Dir: options.Dir, Marker: p.marker}
	if r.Env == nil {
		r.Env = map[string]string{}
	}
	if req.Arguments != nil {
		text := string(req.Arguments)
		r.Arguments = &text
	}
	switch req.Language {
	case sdk.Python:
		p.Suffix = ".py"
		p.Source = fmt.Sprintf(pythonProcess, pythonRunner, r.encode())
	case sdk.JavaScript:
		p.Suffix = ".cjs"
		if req.Arguments == nil && strings.Contains(req.Code, "main") {
			parsed, _ := javascript.Parse(req.Code) // what does not parse is left to Node
			r.Call = parsed.ExpectsCall()
		}
		p.Source = fmt.Sprintf(javaScriptSource, javaScriptRunner, r.encode())
	case sdk.Bash:
		if req.Arguments != nil {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main to call with arguments")
		}
		for name := range req.Env {
			if !bash.IsName(name) {
				return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "bash has no variables with a name like %.100q", name)
			}
		}
		p.Suffix = ".sh"
		p.Source = bash.Script(req.Env, req.Code)
	default:
		return nil, sdk.FieldErrorf(sdk.CodeNotSupported, "language", "no program can be made of %s", req.Language)
	}
	return p, nil
}

// Command is what runs the program whose Source is in that file.
func (p *Program) Command(file string) []string {
	return []string{map[sdk.Language]string{sdk.Python: "python3", sdk.JavaScript: "node", sdk.Bash: "bash"}[p.language], file}
}

// What is around the runners, which come as base64.
const (
	// A file of the code's own beside that of the program shall not take the place of
	// a module that the runner imports.
	pythonProcess = `import sys
if sys.path[:1] in ([""], [globals().get("__file__", "").rpartition("/")[0]]):
    del sys.path[0]
_ = {"__name__": "sandbox"}
exec(compile(__import__("base64").b64decode("%s"), "<sandbox>", "exec"), _)
_["run"]("%s", globals().get("__file__"))
`
	javaScriptSource = `require("node:vm").runInThisContext(Buffer.from("%s", "base64").toString(), { filename: "sandbox-runner.js" })(require, typeof __filename === "string" ? __filename : "", "%s")
`
)

// request is what the runners read.
type request struct {
	Code string `json:"code"`
	// Arguments is text of JSON, so that it is the runner that fails on one that
	// nests too deep for it; nil for none.
	Arguments *string           `json:"arguments"`
	Env       map[string]string `json:"env"`
	Limit     int64             `json:"limit"`
	Dir       string            `json:"dir"`
	Marker    string            `json:"marker"`
	// Call says whether a JavaScript main is called without arguments. The Python
	// runner finds that out by itself.
	Call bool `json:"call"`
}

func (r request) encode() string {
	text, _ := json.Marshal(r) // strings and numbers cannot fail
	return encode(text)
}

func encode(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// newMarker makes a text that nobody has seen before.
func newMarker() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails, by its documentation
	return "__sandbox_" + hex.EncodeToString(random) + ":"
}

func isObject(arguments json.RawMessage) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(arguments, &fields) == nil && fields != nil
}

// checkEnvironment refuses what cannot be a variable.
func checkEnvironment(env map[string]string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "%.100q cannot be the name of a variable", name)
		}
		if strings.Contains(value, "\x00") {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "the value of %.100q has a NUL in it", name)
		}
	}
	return nil
}
