package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/atomicfile"
)

type formatCommand struct {
	configFlag
	Files []string `arg:"" optional:"" help:"The files to format; - for standard input to standard output. sandbox.hcl unless given."`
	Check bool     `help:"Change nothing: name the files that are not formatted, with exit code 1 if there are any."`
}

// Validate is what kong asks before the command runs.
func (c *formatCommand) Validate() error { return c.agrees(c.Files...) }

// Run formats files in place and names those that it changed.
func (c *formatCommand) Run(term *terminal) error {
	files := c.Files
	switch {
	case c.Config != nil:
		files = []string{*c.Config}
	case len(files) == 0:
		files = []string{defaultConfig}
	}
	failed := false
	for _, name := range files {
		ok, err := c.format(term, name)
		if err != nil {
			return err
		}
		failed = failed || !ok
	}
	if failed {
		return exitCode(1)
	}
	return nil
}

// format reports whether nothing is left to do about a file.
func (c *formatCommand) format(term *terminal, name string) (ok bool, err error) {
	stream := name == "-"
	var text []byte
	if stream {
		name = "standard input"
		text, err = io.ReadAll(term.in)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return false, err
	}
	formatted, diags := config.Format(name, text)
	if diags.HasErrors() {
		return false, diags.Write(term.err, term.style)
	}
	same := bytes.Equal(text, formatted)
	switch {
	case c.Check && !same:
		_, err = fmt.Fprintln(term.out, name)
		return false, err
	case c.Check:
		return true, nil
	case stream:
		_, err = term.out.Write(formatted)
		return true, err
	case same:
		return true, nil
	}
	if err := atomicfile.Replace(name, formatted, sha256.Sum256(text)); err != nil {
		return false, fileError(name, err)
	}
	_, err = fmt.Fprintln(term.out, name)
	return true, err
}
