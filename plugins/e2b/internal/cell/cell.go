// Package cell writes the small cells that the provider runs in a kernel beside those of
// the agent: to set variables of the environment and to put them back, and to call main.
// Nothing of a request is pasted into them as it is. None of them has a value, so that
// none shows as a result.
package cell

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/kernelmain"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	//go:embed call.py
	callPython []byte
	//go:embed call.js
	callJavaScript []byte
)

// Supports reports whether there are cells in a language.
func Supports(language sdk.Language) bool {
	return language == sdk.Python || language == sdk.JavaScript || language == sdk.TypeScript
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

// ShowPID prints the PID of a Python kernel.
const ShowPID = `print(__import__("os").getpid(), flush=True)`

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
