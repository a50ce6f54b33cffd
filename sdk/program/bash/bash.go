// Package bash writes scripts for bash. It imports nothing of the SDK, so that a
// guest in a sandbox can use it.
package bash

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// identifier is what bash takes for the name of a variable.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsName reports whether bash can have a variable of that name.
func IsName(name string) bool { return identifier.MatchString(name) }

// Script is the code behind the variables of its environment. They stand on the first
// line, so that line numbers in messages are those of the code; and bash shows the line of
// a syntax error, so that the code is one word there, which eval reads. Without variables
// all is the same but two signs of eval: its name in the message of a syntax error, and
// one "+" more before what set -x shows.
func Script(env map[string]string, code string) string {
	exports := Exports(env)
	if exports == "" {
		return code
	}
	// The code does not see that a variable could not be set.
	return exports + ":;eval -- " + Quote(code)
}

// Exports are commands that set variables, each ended by a semicolon, without a line end
// in them. Variables that are bash's own (UID), and those whose name IsName refuses, are
// left out.
func Exports(env map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if IsName(name) {
			fmt.Fprintf(&b, "export %s=%s 2>/dev/null;", name, Quote(env[name]))
		}
	}
	return b.String()
}

// Quote writes a string as one word of bash without a line end in it.
func Quote(s string) string {
	return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(s) + "'"
}
