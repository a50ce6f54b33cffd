package config

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
	"github.com/mitchellh/go-wordwrap"
)

// Style says how Write shows diagnostics.
type Style struct {
	// Color uses ANSI escape sequences.
	Color bool
	// Width of the text in columns; 0 does not wrap.
	Width uint
}

// maxExcerpt bounds the shown part of a line, in characters.
const maxExcerpt = 160

// Write shows the diagnostics to a person: place, excerpt with the part at fault
// marked, and what to do.
func (ds Diagnostics) Write(w io.Writer, style Style) error {
	for i, d := range ds {
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(w, d.render(style)); err != nil {
			return err
		}
	}
	return nil
}

func (d Diagnostic) render(style Style) string {
	var b strings.Builder
	paint := func(code, text string) string {
		if !style.Color {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	label, code := "Error", "1;31"
	if d.Severity == SeverityWarning {
		label, code = "Warning", "1;33"
	}
	fmt.Fprintf(&b, "%s %s\n", paint(code, label+":"), paint("1", printable(d.Summary)))
	within := ""
	if d.Within != "" {
		within = ", in " + d.Within
	}
	fmt.Fprintf(&b, "  at %s%s\n", printable(d.place()), printable(within))

	if text, from, to := d.Excerpt.shown(); text != "" {
		number := fmt.Sprintf("%5d", d.Start.Line)
		fmt.Fprintf(&b, "\n%s | %s\n", number, text)
		// The indentation repeats tabs, so that the marks stand right
		// whatever a tab's width. A mistake may be that nothing stands there.
		marks := strings.Repeat("^", max(1, runewidth.StringWidth(text[from:to])))
		fmt.Fprintf(&b, "%s | %s%s\n", strings.Repeat(" ", len(number)), indentation(text[:from]), paint(code, marks))
	}
	if d.Detail != "" {
		detail := printable(d.Detail)
		if style.Width > 2 {
			detail = wordwrap.WrapString(detail, style.Width-2)
		}
		b.WriteString("\n")
		for line := range strings.Lines(detail + "\n") {
			b.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
		}
	}
	return b.String()
}

// shown is the excerpt made fit for a terminal, with the marked part.
func (e Excerpt) shown() (text string, from, to int) {
	before := printable(e.Text[:e.From])
	marked := printable(e.Text[e.From:e.To])
	text = before + marked + printable(e.Text[e.To:])
	from, to = len(before), len(before)+len(marked)
	count := 0
	for cut := range text {
		if count++; count > maxExcerpt {
			return text[:cut] + "…", min(from, cut), min(to, cut)
		}
	}
	return text, from, to
}

func indentation(before string) string {
	var b strings.Builder
	for _, r := range before {
		if r == '\t' {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Repeat(" ", runewidth.RuneWidth(r)))
	}
	return b.String()
}

// printable replaces what could steer a terminal: a plugin's texts and the file
// itself end here.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func capitalize(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
