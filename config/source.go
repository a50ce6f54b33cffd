package config

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// hidden stands for a secret in an excerpt.
const hidden = "(hidden)"

// source is the text of a file, of which excerpts are shown.
type source struct {
	name string
	// order of the file among the others.
	order int
	lines []sourceLine
}

type sourceLine struct {
	start int // byte offset in the file
	text  string
	// hideFrom is where in text begins what may be secret, and ownFrom what is in
	// any setting; len(text) if nothing is.
	hideFrom, ownFrom int
}

// newSource finds out which parts of the lines may be shown. It looks at the
// text alone: it must also be right about a file that does not parse, whose
// mistake may well stand in the line with the password. So everything is hidden
// but the values of the broker's own settings.
func newSource(name string, order int, text []byte) *source {
	src := &source{name: name, order: order}
	guard := excerptGuard{open: true}
	start := 0
	for raw := range bytes.Lines(text) {
		line := strings.TrimRight(string(raw), "\r\n")
		ownFrom := len(line)
		if own := ownSecret.FindStringIndex(line); own != nil {
			ownFrom = own[0]
		}
		src.lines = append(src.lines, sourceLine{start: start, text: line, hideFrom: min(guard.hideFrom(line), ownFrom), ownFrom: ownFrom})
		start += len(raw)
	}
	return src
}

// excerpt shows the first line of a range. A trusted range stands in a setting
// that is known not to be secret, so that nothing of its line is hidden but what is in
// any setting.
func (s *source) excerpt(rng hcl.Range, trusted bool) Excerpt {
	if rng.Start.Line < 1 || rng.Start.Line > len(s.lines) {
		return Excerpt{}
	}
	line := s.lines[rng.Start.Line-1]
	from := min(max(rng.Start.Byte-line.start, 0), len(line.text))
	to := len(line.text)
	if rng.End.Line == rng.Start.Line {
		to = min(max(rng.End.Byte-line.start, from), len(line.text))
	}
	text, hideFrom := line.text, line.hideFrom
	if trusted {
		hideFrom = line.ownFrom
	}
	if hideFrom < len(text) {
		text = text[:hideFrom] + hidden
		if to > hideFrom {
			to = len(text)
		}
		from = min(from, hideFrom)
	}
	return Excerpt{Text: text, From: from, To: to}
}
