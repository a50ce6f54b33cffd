package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// terminal is where a command reads and writes.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// style for what people read on err.
	style config.Style
}

// newTerminal uses colors when err is a terminal and NO_COLOR is not set
// (https://no-color.org).
func newTerminal(in, out, err *os.File) *terminal {
	term := &terminal{in: in, out: out, err: err, style: config.Style{Width: 100}}
	size, ioctlErr := unix.IoctlGetWinsize(int(err.Fd()), unix.TIOCGWINSZ)
	if ioctlErr != nil {
		return term
	}
	term.style.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if size.Col > 0 {
		term.style.Width = min(uint(size.Col), 100)
	}
	return term
}
