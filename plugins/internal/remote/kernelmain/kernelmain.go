// Package kernelmain has what the providers of remote services run in a kernel of theirs
// to call main with arguments: it checks main, awaits it, and makes JSON of what it
// returns. How the request gets in and the JSON gets out differs, and is the provider's.
package kernelmain

import (
	_ "embed"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk/program/returned"
)

var (
	//go:embed returned.py
	python []byte
	//go:embed returned.js
	javaScript []byte
)

// Python is a program that can use `await returned(main, encoded)`. The request, JSON in
// base64, has arguments (a text of JSON) and limit (bytes of the result, at most); what
// else is in it is the program's own. Besides, base64, inspect and json are imported.
func Python(program []byte) []byte {
	return slices.Concat(returned.Python(), []byte("\n\n"), python, []byte("\n\n"), program)
}

// JavaScript is an expression that can use the same; it gives an object with request and
// data.
func JavaScript(expression []byte) []byte {
	return slices.Concat([]byte("(() => {\n"), returned.JavaScript(), javaScript, []byte("return (\n"), expression, []byte(");\n})()"))
}
