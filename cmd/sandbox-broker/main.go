package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
)

// commandLine has one field a command.
type commandLine struct {
	Serve   serveCommand   `cmd:"" help:"Run the broker."`
	Exec    execCommand    `cmd:"" help:"Run code in a sandbox and print what it prints."`
	MCP     mcpCommand     `cmd:"" name:"mcp" help:"Serve tools for assistants (MCP) over standard input and output."`
	Check   checkCommand   `cmd:"" help:"Check a configuration file and show every mistake in it."`
	Config  configCommand  `cmd:"" help:"Lay out configuration files, and tell what may stand in them."`
	Plugin  pluginCommand  `cmd:"" help:"Work with plugins."`
	Token   tokenCommand   `cmd:"" help:"Make a token for a tenant."`
	Keygen  keygenCommand  `cmd:"" help:"Make a key for sealed values."`
	Seal    sealCommand    `cmd:"" help:"Seal a secret, so that it can stand in a configuration file."`
	Unseal  unsealCommand  `cmd:"" help:"Show a value that was sealed."`
	Rotate  rotateCommand  `cmd:"" help:"Seal all sealed values of a configuration anew, with the first key."`
	Audit   auditCommand   `cmd:"" help:"Check an audit log."`
	State   stateCommand   `cmd:"" help:"Check, back up and restore the state of a broker."`
	Version versionCommand `cmd:"" help:"Print the version."`
	Help    helpCommand    `cmd:"" help:"Show what a command does, or all of them."`

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
}

// exitUsage is the exit code of a command line that makes no sense.
const exitUsage = 2

// exitCode ends the program without a message: the command said it all.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// thisProgram is also what watches over plugins: see main.
const thisProgram = "/proc/self/exe"

func main() {
	watchdog.Main() // which returns unless that is what this process is for
	os.Exit(run(context.Background(), os.Args[1:], newTerminal(os.Stdin, os.Stdout, os.Stderr), describePlugin))
}

// run is main without the process: it returns the exit code. The Run method of a
// command may take any of its arguments but args.
func run(ctx context.Context, args []string, term *terminal, ask describe) int {
	exited := -1
	var line commandLine
	parser, err := kong.New(&line,
		kong.Name("sandbox-broker"),
		kong.Description("One REST API in front of many sandboxes for code that AI agents write."),
		kong.Writers(term.out, term.err),
		kong.Vars{"version": versionLine()},
		kong.Exit(func(code int) { exited = code }), // --help has been printed
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(term, ask),
	)
	if err != nil {
		fmt.Fprintln(term.err, "sandbox-broker:", err)
		return 1
	}
	parsed, err := parser.Parse(withTwoDashes(args))
	if exited >= 0 {
		return exited
	}
	if err != nil {
		fmt.Fprintf(term.err, "sandbox-broker: %v\nTry: sandbox-broker --help\n", err)
		return exitUsage
	}
	err = parsed.Run()
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	if err != nil {
		fmt.Fprintln(term.err, "sandbox-broker:", err)
		return 1
	}
	return 0
}

// withTwoDashes takes -config and -version, as people write who are used to Go's own
// commands, for --config and --version and not for short flags in a row.
func withTwoDashes(args []string) []string {
	args = slices.Clone(args)
	for i, arg := range args {
		if name, _, _ := strings.Cut(arg, "="); name == "-config" || name == "-version" {
			args[i] = "-" + arg
		}
	}
	return args
}
