// Package table prints lists for people: columns below their heads, in a width that
// counts characters as a terminal does, with nothing in a cell that steers the terminal.
//
// Not here: which columns there are, and JSON.
package table

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// Color is how a cell is shown on a terminal that has colors.
type Color string

// The colors of cells.
const (
	Plain  Color = ""
	Green  Color = "\x1b[32m"
	Yellow Color = "\x1b[33m"
	Red    Color = "\x1b[31m"
	Faint  Color = "\x1b[2m"
)

const plainAgain = "\x1b[0m"

// Column is one column of a table of T.
type Column[T any] struct {
	// Head is shown above it, in capital letters.
	Head string
	// Wide is one that is shown only where there is room for long lines.
	Wide bool
	// Cell is what is shown of an item; what is empty is shown as "-".
	Cell func(T) string
	// Color of the cell; nil for Plain.
	Color func(T) Color
}

// Options say how a table is printed.
type Options struct {
	// Wide shows the columns that are Wide, too.
	Wide bool
	// Colors says whether the reader is a terminal that has them.
	Colors bool
}

const between = "  "

// Print prints the items below the heads of the columns, which are there without items too.
func Print[T any](w io.Writer, columns []Column[T], items []T, o Options) error {
	shown := columns[:0:0]
	for _, c := range columns {
		if !c.Wide || o.Wide {
			shown = append(shown, c)
		}
	}
	widths := make([]int, len(shown))
	rows := make([][]string, len(items))
	for i, c := range shown {
		widths[i] = runewidth.StringWidth(c.Head)
	}
	for r, item := range items {
		for i, c := range shown {
			cell := Printable(c.Cell(item))
			if cell == "" {
				cell = "-"
			}
			rows[r] = append(rows[r], cell)
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	var b strings.Builder
	for i, c := range shown {
		write(&b, c.Head, Plain, widths[i], i == len(shown)-1)
	}
	for r, row := range rows {
		for i, cell := range row {
			color := Plain
			if o.Colors && shown[i].Color != nil {
				color = shown[i].Color(items[r])
			}
			write(&b, cell, color, widths[i], i == len(row)-1)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write puts a cell into its column. The last one needs no room behind it.
func write(b *strings.Builder, cell string, color Color, width int, last bool) {
	room := strings.Repeat(" ", width-runewidth.StringWidth(cell))
	if color != Plain {
		cell = string(color) + cell + plainAgain
	}
	b.WriteString(cell)
	if last {
		b.WriteString("\n")
		return
	}
	b.WriteString(room + between)
}

// Printable makes text of others fit for a terminal: one line, nothing that steers it.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return unicode.ReplacementChar
		}
	}, text)
}

// Duration is a time in one unit, rounded down, as in 45s, 12m, 5h and 3d.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
