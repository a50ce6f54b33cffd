package config

import (
	"fmt"
	"sort"
	"strings"
)

// Severity of a Diagnostic.
type Severity string

// An error keeps the configuration from being used, a warning does not.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Position in a file. Lines and columns count from 1, columns in characters as
// people see them, Byte from 0. The zero Position means the file as a whole.
type Position struct{ Line, Column, Byte int }

// Diagnostic is one mistake in the configuration.
type Diagnostic struct {
	Severity Severity
	// Summary says in a few words what is wrong.
	Summary string
	// Detail says in sentences what to do about it.
	Detail string
	// File as it was named to Load.
	File       string
	Start, End Position
	// Within names the block around the mistake, such as `provider "e2b"`.
	Within string
	// Setting is the name of the setting at fault, if one is.
	Setting string
	// Excerpt is for the terminal and the log, not for the API: secrets are
	// cut out of it as far as they are known, but a person's typing mistakes
	// know no bounds.
	Excerpt Excerpt
	// order of the file among those that were read.
	order int
}

// Excerpt is the first line of a mistake.
type Excerpt struct {
	// Text of the line, "" if there is none to show.
	Text string
	// From and To are the marked part, in bytes of Text.
	From, To int
}

// Error returns place, summary and detail in one line.
func (d Diagnostic) Error() string {
	line := fmt.Sprintf("%s: %s: %s", d.place(), d.Summary, d.Detail)
	return printable(strings.Join(strings.Fields(line), " "))
}

// place is file:line:column, or the file alone.
func (d Diagnostic) place() string {
	if d.Start.Line == 0 {
		return d.File
	}
	return fmt.Sprintf("%s:%d:%d", d.File, d.Start.Line, d.Start.Column)
}

// Diagnostics are all mistakes of a configuration, in the order of the files.
type Diagnostics []Diagnostic

var _ error = Diagnostics(nil)

// HasErrors reports whether one of them is more than a warning.
func (ds Diagnostics) HasErrors() bool {
	for _, d := range ds {
		if d.Severity == SeverityError {
			return true
		}
	}
	return false
}

// Error returns one line for each. Write shows them to people.
func (ds Diagnostics) Error() string {
	lines := make([]string, len(ds))
	for i, d := range ds {
		lines[i] = d.Error()
	}
	return strings.Join(lines, "\n")
}

// With returns these and more of the same configuration, in its order.
func (ds Diagnostics) With(more Diagnostics) Diagnostics {
	all := append(ds[:len(ds):len(ds)], more...)
	all.sort()
	return all
}

// sort puts them in the order of the files, those about a whole file behind the
// others of it.
func (ds Diagnostics) sort() {
	sort.SliceStable(ds, func(i, j int) bool {
		if ds[i].order != ds[j].order {
			return ds[i].order < ds[j].order
		}
		a, b := ds[i].Start, ds[j].Start
		if (a.Line == 0) != (b.Line == 0) {
			return b.Line == 0
		}
		return a.Byte < b.Byte
	})
}
