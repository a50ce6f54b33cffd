// Package cell writes the small cells that the provider runs in a kernel beside those of
// the agent: to furnish a new kernel, to set variables of the environment and to put them
// back, and to call main.
// Nothing of a request is pasted into them as it is. None of them has a value, so that
// none shows as a result.
package cell

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernelmain"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	//go:embed call.py
	callPython []byte
	//go:embed call.js
	callJavaScript []byte
	//go:embed furnish.py
	furnishPython []byte
	//go:embed furnish.js
	furnishJavaScript []byte
)

// Supports reports whether there are cells in a language.
func Supports(language sdk.Language) bool {
	return language == sdk.Python || language == sdk.JavaScript || language == sdk.TypeScript
}

// First is what a new kernel runs before anything else. The code interpreter pastes the
// environment of the sandbox before the first cell, between quotes and unescaped: whatever
// that does is done to a cell whose output and errors nobody sees.
func First(language sdk.Language) string {
	switch language {
	case sdk.Python:
		return "pass"
	case sdk.R:
		return "invisible(NULL)"
	case sdk.Java:
		return `System.getProperty("user.dir");`
	default:
		return "void 0"
	}
}

// Furnish gives a new kernel its environment and its directory. A kernel of JavaScript
// writes into the file end how it ends.
func Furnish(language sdk.Language, env map[string]string, cwd, end string) string {
	request := encode(map[string]any{"env": env, "cwd": cwd, "end": end})
	switch language {
	case sdk.Python:
		return fmt.Sprintf(`exec(compile(__import__("base64").b64decode("%s"), "<sandbox>", "exec"), {"request": "%s"})`,
			base64.StdEncoding.EncodeToString(furnishPython), request)
	case sdk.R:
		// The package is one of those that the kernel itself is made of.
		return fmt.Sprintf(`invisible(local({ wanted <- jsonlite::fromJSON(rawToChar(jsonlite::base64_dec("%s")), simplifyVector = FALSE); if (length(wanted$env)) do.call(Sys.setenv, wanted$env); try(setwd(wanted$cwd), silent = TRUE) }))`, request)
	case sdk.Java:
		var b strings.Builder
		fmt.Fprintf(&b, "System.setProperty(%s, %s);\n", javaText("user.dir"), javaText(cwd))
		for _, name := range slices.Sorted(maps.Keys(env)) {
			fmt.Fprintf(&b, "System.setProperty(%s, %s);\n", javaText(name), javaText(env[name]))
		}
		return b.String()
	default:
		return fmt.Sprintf(`void eval(Buffer.from("%s", "base64").toString())("%s")`,
			base64.StdEncoding.EncodeToString(furnishJavaScript), request)
	}
}

// javaLiteral is how long a literal may be: a class file has room for 65,535 bytes.
const javaLiteral = 60_000

// javaText is an expression for a text.
func javaText(text string) string {
	var b strings.Builder
	b.WriteString("new String(java.util.Base64.getDecoder().decode(new StringBuilder()")
	for piece := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString([]byte(text))), javaLiteral) {
		fmt.Fprintf(&b, `.append("%s")`, piece)
	}
	b.WriteString(".toString()), java.nio.charset.StandardCharsets.UTF_8)")
	return b.String()
}

// SetEnv sets variables.
func SetEnv(language sdk.Language, env map[string]string) string {
	if language == sdk.Python {
		return fmt.Sprintf(`(lambda os, values: (setattr(os, "_sandbox_before", {name: os.environ.get(name) for name in values}), os.environ.update(values), None)[2])(__import__("os"), __import__("json").loads(__import__("base64").b64decode("%s")))`, encode(env))
	}
	return fmt.Sprintf(`void ((values) => { process[Symbol.for("sandbox.before")] = Object.fromEntries(Object.keys(values).map((name) => [name, process.env[name]])); Object.assign(process.env, values); })(JSON.parse(Buffer.from("%s", "base64").toString()))`, encode(env))
}

// RestoreEnv puts back what the last SetEnv has changed.
func RestoreEnv(language sdk.Language) string {
	if language == sdk.Python {
		return `(lambda os: ([os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value) for name, value in os._sandbox_before.items()], None)[1])(__import__("os"))`
	}
	return `void Object.entries(process[Symbol.for("sandbox.before")]).forEach(([name, value]) => { if (value === undefined) delete process.env[name]; else process.env[name] = value; })`
}

// ShowPID prints the PID of what runs the cells; it is empty where there is no such cell.
func ShowPID(language sdk.Language) string {
	switch language {
	case sdk.Python:
		return `print(__import__("os").getpid(), flush=True)`
	case sdk.JavaScript, sdk.TypeScript:
		return `console.log(process.pid)`
	default:
		return ""
	}
}

// Call calls main with arguments, a JSON object, and tells the result as a frame. One
// above limit bytes fails.
func Call(language sdk.Language, arguments json.RawMessage, marker string, limit int64) string {
	request := encode(map[string]any{"arguments": string(arguments), "marker": marker, "limit": limit})
	if language == sdk.Python {
		return fmt.Sprintf(`await (lambda _: (exec(compile(__import__("base64").b64decode("%s"), "<sandbox>", "exec"), _), _["call"])[1])({"__name__": "sandbox"})(globals().get("main"), "%s")`,
			base64.StdEncoding.EncodeToString(kernelmain.Python(callPython)), request)
	}
	return fmt.Sprintf(`eval(Buffer.from("%s", "base64").toString())(typeof main === "undefined" ? undefined : main, "%s")`,
		base64.StdEncoding.EncodeToString(kernelmain.JavaScript(callJavaScript)), request)
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // texts and numbers always can be
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}
