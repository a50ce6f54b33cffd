package main

import (
	"context"

	"github.com/alecthomas/kong"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/completion"
	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/remote"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: ${enum}."`
}

// Help is shown below the usage.
func (*completionCommand) Help() string {
	return `Instances, sessions, providers, tenants and paths in instances are those of the broker at
that moment.

Examples:
  source <(sandbox-broker completion bash)     in ~/.bashrc
  source <(sandbox-broker completion zsh)      in ~/.zshrc, behind compinit
  sandbox-broker completion fish >~/.config/fish/completions/sandbox-broker.fish`
}

// Run prints the script.
func (c *completionCommand) Run(term *terminal) error {
	script, err := completion.Script(c.Shell)
	if err != nil {
		return err
	}
	_, err = term.out.Write(script)
	return err
}

type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words behind the program's name, the last of which is not complete."`
}

// Run answers a script of a shell.
func (c *completeCommand) Run(ctx context.Context, program *kong.Kong, term *terminal, console *remote.Console) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	candidates, files := completion.Next(program.Model, words, completion.Options{
		Names: func(kind, word string, flags map[string]string) []string {
			return remote.LiveNames(ctx, console, kind, word, flags)
		},
	})
	return completion.Write(term.out, candidates, files)
}
