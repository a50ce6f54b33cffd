// Package cell writes the small cells that the provider runs in a kernel beside those of
// the agent: one before each execution, which leads its output to where package place
// reads it, and one behind it that calls main. Nothing of a request is pasted into them
// as it is, and none of them has a value, so that none shows as a result.
package cell

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernelmain"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	//go:embed cell.py
	python []byte
	//go:embed cell.js
	javaScript []byte
)

// Start is what an execution begins with.
type Start struct {
	// ID is the name of the execution in the sandbox.
	ID string `json:"id"`
	// Env is all of its environment beyond the kernel's own.
	Env map[string]string `json:"env"`
	// Dir is where a new kernel shall work; empty to leave it where it is.
	Dir string `json:"dir"`
	// Artifacts is a directory that is made unless something has its name.
	Artifacts string `json:"artifacts"`
}

// Begin is the cell before the code.
func Begin(language sdk.Language, s Start) string {
	if language == sdk.Python {
		return fmt.Sprintf(`(lambda sys, types: ("_sandbox" in sys.modules or (sys.modules.__setitem__("_sandbox", types.ModuleType("_sandbox")), exec(compile(__import__("base64").b64decode("%s"), "<sandbox>", "exec"), sys.modules["_sandbox"].__dict__)), sys.modules["_sandbox"].begin("%s"), None)[2])(__import__("sys"), __import__("types"))`,
			base64.StdEncoding.EncodeToString(kernelmain.Python(python)), encode(s))
	}
	return fmt.Sprintf(`void (process[Symbol.for("sandbox")] ??= eval(Buffer.from("%s", "base64").toString())(require)).begin("%s")`,
		base64.StdEncoding.EncodeToString(kernelmain.JavaScript(javaScript)), encode(s))
}

// Print is a cell of JavaScript that prints a line as the code of agents does.
func Print(line string) string { return fmt.Sprintf("console.log(%q)", line) }

// Call is the cell behind the code that calls main with arguments, a JSON object. A
// result above limit bytes fails.
func Call(language sdk.Language, arguments json.RawMessage, limit int64) string {
	request := encode(map[string]any{"arguments": string(arguments), "limit": limit})
	if language == sdk.Python {
		return fmt.Sprintf(`await __import__("sys").modules["_sandbox"].call(globals().get("main"), "%s")`, request)
	}
	return fmt.Sprintf(`await process[Symbol.for("sandbox")].call(typeof main === "undefined" ? undefined : main, "%s")`, request)
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // texts and numbers always can be
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}
