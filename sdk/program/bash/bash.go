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

// Script is the code behind the variables of its environment, all on the first
// line, so that line numbers in messages are those of the code. Variables that are
// bash's own (UID), and those whose name IsName refuses, are left out.
func Script(env map[string]string, code string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if IsName(name) {
			fmt.Fprintf(&b, "export %s=%s 2>/dev/null;", name, Quote(env[name]))
		}
	}
	b.WriteString(code)
	return b.String()
}

// Quote writes a string as one word of bash without a line end in it.
func Quote(s string) string {
	return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(s) + "'"
}
