package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// terminal is where a command reads and writes.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// prompt asks a person for a secret, which does not appear on the screen;
	// nil when in is no terminal.
	prompt func(text string) (string, error)
	// style for what people read on err.
	style config.Style
}

// console is the same for commands that ask a broker.
func (t *terminal) console() *remote.Console {
	return remote.NewConsole(t.in, t.out, t.err, os.Getenv)
}

// newTerminal uses colors when err is a terminal and NO_COLOR is not set
// (https://no-color.org).
func newTerminal(in, out, err *os.File) *terminal {
	t := &terminal{in: in, out: out, err: err, style: config.Style{Width: 100}}
	if term.IsTerminal(int(in.Fd())) {
		t.prompt = func(text string) (string, error) {
			fmt.Fprint(err, text)
			defer fmt.Fprintln(err)
			secret, readErr := term.ReadPassword(int(in.Fd()))
			return string(secret), readErr
		}
	}
	size, ioctlErr := unix.IoctlGetWinsize(int(err.Fd()), unix.TIOCGWINSZ)
	if ioctlErr != nil {
		return t
	}
	t.style.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if size.Col > 0 {
		t.style.Width = min(uint(size.Col), 100)
	}
	return t
}

// secret asks a person for a secret, or reads it from what is no terminal, without
// the newline at its end.
func (t *terminal) secret(text string) (string, error) {
	if t.prompt != nil {
		return t.prompt(text)
	}
	input, err := io.ReadAll(io.LimitReader(t.in, seal.MaxValue+2))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	if len(input) > seal.MaxValue+1 {
		return "", errors.New("standard input is too long for a secret")
	}
	value, found := strings.CutSuffix(string(input), "\n")
	if found {
		value = strings.TrimSuffix(value, "\r")
	}
	return value, nil
}
