package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"A command, such as: plugin verify."`
}

// Run prints what --help behind the command prints.
func (c helpCommand) Run(ctx *kong.Context, term *terminal) error {
	asked, err := kong.Trace(ctx.Kong, c.Command)
	if err != nil {
		return err
	}
	if commands(asked) != len(c.Command) {
		fmt.Fprintf(term.err, "sandbox-broker: there is no command %q\nTry: sandbox-broker --help\n", strings.Join(c.Command, " "))
		return exitCode(exitUsage)
	}
	return asked.PrintUsage(false)
}

// commands counts the words that name a command. What else a command needs is
// missing, as it must be.
func commands(asked *kong.Context) int {
	n := 0
	for _, step := range asked.Path {
		if step.Command != nil {
			n++
		}
	}
	return n
}
