package main

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode/utf8"
)

var (
	color  = regexp.MustCompile("\x1b\\[(\\d+)m")
	escape = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")
)

// classes are the colors of table cells, as names of styles.
var classes = map[string]string{"31": "red", "32": "green", "33": "yellow"}

// picture is what a terminal has shown as an SVG, line by line. It knows colors, and of the
// cursor nothing but its way back to the beginning of a line.
func picture(shown string) []byte {
	lines := strings.Split(strings.TrimRight(shown, "\r\n "), "\n")
	for n, line := range lines {
		// Progress is taken away again by what follows.
		line = line[strings.LastIndex(line, "\r\x1b[K")+1:]
		lines[n] = strings.ReplaceAll(line, "\r", "")
	}
	if last := len(lines) - 1; lines[last] == strings.TrimSpace(prompt) {
		lines = lines[:last]
	}
	const lineHeight, charWidth, margin = 18, 8, 14
	width := 0
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(escape.ReplaceAllString(line, "")))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" role="img">
<title>sandbox-broker at work</title>
<style>text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}.typed{fill:#fff;font-weight:bold}.green{fill:#8fce6b}.yellow{fill:#e5c07b}.red{fill:#e06c75}</style>
<rect width="100%%" height="100%%" rx="8" fill="#1f2430"/>
`, width*charWidth+2*margin, len(lines)*lineHeight+2*margin)
	for n, line := range lines {
		class := ""
		if strings.HasPrefix(line, prompt) {
			class = ` class="typed"`
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\"%s xml:space=\"preserve\">%s</text>\n", margin, margin+(n+1)*lineHeight-5, class, spans(line))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// spans is a line with its colors as styles.
func spans(line string) string {
	var b strings.Builder
	open := false
	for line != "" {
		at := color.FindStringSubmatchIndex(line)
		if at == nil {
			b.WriteString(html.EscapeString(escape.ReplaceAllString(line, "")))
			break
		}
		b.WriteString(html.EscapeString(escape.ReplaceAllString(line[:at[0]], "")))
		if open {
			b.WriteString("</tspan>")
			open = false
		}
		if class, known := classes[line[at[2]:at[3]]]; known {
			fmt.Fprintf(&b, "<tspan class=%q>", class)
			open = true
		}
		line = line[at[1]:]
	}
	if open {
		b.WriteString("</tspan>")
	}
	return b.String()
}
