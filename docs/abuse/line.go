package abuse

import (
	"fmt"
	"strings"
)

// Line is what is known of things that are abused in one way.
type Line struct {
	// Of names what it is about: operations of the OpenAPI document, settings as
	// "block.setting", or headers.
	Of []string
	// Abuse says who may abuse it, and what for.
	Abuse string
	// Stops says what stops it, or what remains.
	Stops string
	// Tests show it, by their names.
	Tests []string
}

// Kind is a table of the page.
type Kind struct {
	Title, Introduction string
	Lines               []Line
}

// Kinds returns all tables.
func Kinds() []Kind { return []Kind{Routes(), Settings(), Headers(), Tools()} }

// Page is the generated section of docs/abuse.md.
func Page() string {
	var b strings.Builder
	for _, kind := range Kinds() {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n| of | who may abuse it, and what for | what stops it | shown by |\n| --- | --- | --- | --- |\n", kind.Title, kind.Introduction)
		for _, l := range kind.Lines {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(l.Of, " "), l.Abuse, l.Stops, code(l.Tests, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func code(names []string, separator string) string {
	return "`" + strings.Join(names, "`"+separator+"`") + "`"
}
