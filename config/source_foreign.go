package config

import "strings"

// foreignBlock follows a block whose settings are not the broker's to its end, over
// the maps and blocks within it. A file that does not parse may have braces too many or
// too few: only one that is indented as the header ends the block.
type foreignBlock struct {
	// indentation of the line of its header.
	indentation int
	// depth of the braces that are open, its own included.
	depth int
	// inComment says that a comment of several lines goes on.
	inComment bool
	// lost says that the braces do not add up, so that depth means nothing.
	lost bool
	// begun says that the line of the header was read.
	begun bool
}

// endsWith reads the next line and reports whether the block ends with it.
func (b *foreignBlock) endsWith(line string) bool {
	first := !b.begun
	b.begun = true
	closed := b.count(line)
	if b.depth > 0 {
		return false
	}
	if closed && (first || strings.HasPrefix(strings.TrimLeft(line, " \t"), "}") && indentationOf(line) <= b.indentation) {
		return true
	}
	b.lost = true
	return false
}

// atTop reports whether the next line stands in the block itself, not in a map or block
// within it. The line of the header does.
func (b *foreignBlock) atTop() bool { return !b.begun || b.depth == 1 && !b.lost }

// count follows the braces of a line that stand neither in texts nor in comments. It
// reports whether one was closed.
func (b *foreignBlock) count(line string) (closed bool) {
	// open are what the line opened: a text, a template in a text or a brace.
	var open []byte
	inText := func() bool { return len(open) > 0 && open[len(open)-1] == '"' }
	for i := 0; i < len(line); i++ {
		rest := line[i:]
		switch {
		case b.inComment:
			if strings.HasPrefix(rest, "*/") {
				b.inComment = false
				i++
			}
		case inText():
			switch {
			case rest[0] == '\\', strings.HasPrefix(rest, "$${"), strings.HasPrefix(rest, "%%{"):
				i++
				if rest[0] != '\\' {
					i++
				}
			case rest[0] == '"':
				open = open[:len(open)-1]
			case strings.HasPrefix(rest, "${"), strings.HasPrefix(rest, "%{"):
				open = append(open, '{')
				b.depth++
				i++
			}
		case rest[0] == '#' || strings.HasPrefix(rest, "//"):
			return closed
		case strings.HasPrefix(rest, "/*"):
			b.inComment = true
			i++
		case rest[0] == '"':
			open = append(open, '"')
		case rest[0] == '{':
			open = append(open, '{')
			b.depth++
		case rest[0] == '}':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
			b.depth--
			closed = true
		}
	}
	return closed
}

// indentationOf counts the white space before a line.
func indentationOf(line string) int {
	return len(line) - len(strings.TrimLeft(line, " \t"))
}
