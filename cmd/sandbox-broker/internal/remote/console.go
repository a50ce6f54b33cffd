package remote

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Console is where a command reads and writes.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	// Getenv looks a variable of the environment up.
	Getenv func(string) string

	// keyboard and screen are In and Out where they are terminals, else nil.
	keyboard, screen *os.File
	// watched says that a person sees Err, and colors that Out is shown in colors.
	watched, colors bool
}

// NewConsole finds out which of the streams are terminals. Colors are for terminals alone,
// and not where NO_COLOR is set (https://no-color.org).
func NewConsole(in io.Reader, out, err io.Writer, getenv func(string) string) *Console {
	c := &Console{In: in, Out: out, Err: err, Getenv: getenv, keyboard: terminal(in), screen: terminal(out), watched: terminal(err) != nil}
	c.colors = c.screen != nil && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	return c
}

// terminal is the stream if that is one, else nil.
func terminal(stream any) *os.File {
	file, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return file
}
