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
	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/remote"
)

// commandLine has one field a command.
type commandLine struct {
	Run        remote.Run        `cmd:"" group:"Sandboxes" help:"Run code in a sandbox and print what it prints."`
	Exec       remote.Exec       `cmd:"" group:"Sandboxes" help:"Run a command in an instance."`
	Create     remote.Create     `cmd:"" group:"Sandboxes" help:"Make an instance."`
	Ps         remote.Ps         `cmd:"" group:"Sandboxes" help:"List instances, or the commands in one."`
	Rm         remote.Rm         `cmd:"" group:"Sandboxes" help:"Destroy instances."`
	Snapshot   remote.Snapshot   `cmd:"" group:"Sandboxes" help:"Keep instances as they are, to go on from there."`
	Fork       remote.Fork       `cmd:"" group:"Sandboxes" help:"Make copies of an instance that go on where it stands."`
	Logs       remote.Logs       `cmd:"" group:"Sandboxes" help:"Show what a command in an instance, or an execution, has printed."`
	Executions remote.Executions `cmd:"" group:"Sandboxes" help:"List executions, look at one, end it."`
	Cp         remote.Cp         `cmd:"" group:"Sandboxes" help:"Copy files and directories to or from an instance."`
	Volume     remote.Volume     `cmd:"" group:"Sandboxes" help:"List, make and delete volumes, and copy their files."`
	Shell      remote.Shell      `cmd:"" group:"Sandboxes" help:"Open a terminal in an instance."`
	Top        remote.Top        `cmd:"" group:"Sandboxes" help:"Show what instances use, as it changes."`
	Events     remote.Events     `cmd:"" group:"Sandboxes" help:"Tell what happens to instances and providers."`
	Providers  remote.Providers  `cmd:"" group:"Sandboxes" help:"List the providers that you may use."`
	Template   remote.Template   `cmd:"" group:"Sandboxes" help:"List the templates of the operator; add, build and remove them."`
	Usage      remote.Usage      `cmd:"" group:"Sandboxes" help:"Show what you have used, and may use."`
	Tenants    remote.Tenants    `cmd:"" group:"Administration" help:"List and change tenants and their tokens."`
	Drain      remote.Drain      `cmd:"" group:"Administration" help:"Have a broker leave new sessions to others, so that it can be stopped."`

	Serve   serveCommand   `cmd:"" group:"The broker and its files" help:"Run the broker."`
	MCP     mcpCommand     `cmd:"" group:"The broker and its files" name:"mcp" help:"Serve tools for assistants (MCP) over standard input and output."`
	Check   checkCommand   `cmd:"" group:"The broker and its files" help:"Check a configuration file and show every mistake in it."`
	Config  configCommand  `cmd:"" group:"Administration" help:"Look at and change the configuration of a broker; lay files out; keep contexts."`
	Plugin  pluginCommand  `cmd:"" group:"The broker and its files" help:"Work with plugins."`
	Token   tokenCommand   `cmd:"" group:"The broker and its files" help:"Make a token for a tenant."`
	Keygen  keygenCommand  `cmd:"" group:"The broker and its files" help:"Make a key for sealed values."`
	Seal    sealCommand    `cmd:"" group:"The broker and its files" help:"Seal a secret, so that it can stand in a configuration file."`
	Unseal  unsealCommand  `cmd:"" group:"The broker and its files" help:"Show a value that was sealed."`
	Rotate  rotateCommand  `cmd:"" group:"The broker and its files" help:"Seal all sealed values of a configuration anew, with the first key."`
	Audit   auditCommand   `cmd:"" group:"The broker and its files" help:"Search and check an audit log."`
	State   stateCommand   `cmd:"" group:"The broker and its files" help:"Check, back up and restore the state of a broker."`
	Version remote.Version `cmd:"" help:"Print the version, and that of the broker."`
	Help    helpCommand    `cmd:"" help:"Show what a command does, or all of them."`

	Completion completionCommand `cmd:"" help:"Print a script that completes command lines."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:"" help:"Say what may come next, for such a script."`

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
}

// exitUsage is the exit code of a command line that makes no sense.
const exitUsage = remote.ExitUsage

// exitCode ends the program without a message: the command said it all.
type exitCode = remote.ExitCode

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
		kong.Bind(term, ask, term.console(), remote.Own{Line: versionLine(), Version: buildVersion()}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
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
		remote.Tell(term.err, err)
		return remote.ExitCodeOf(err)
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
