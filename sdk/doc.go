// Package sdk is what the author of a provider plugin imports.
//
// A provider runs code in sandboxes of some kind: containers on this machine, a
// cloud, anything. It is a separate executable that the broker starts and talks
// to over gRPC; the author sees none of that. The broker owns tenants, instance
// IDs, quotas, queues, deadlines, fallback and audit: a provider has none of these.
//
// # From nothing to a served provider
//
// Write a type with the seven methods of Provider (provider.go says what each
// must do), a function that makes it, and a main of one line, with package serve:
//
//	package main
//
//	func main() { serve.Serve(New) }
//
//	func New(logger hclog.Logger) sdk.Provider { return &provider{logger: logger} }
//
// Describe names the provider, its languages, its templates and its settings.
// Configure gets the settings, checked, and connects. Create makes an instance,
// Execute runs code in it, Destroy ends it, List says which there are, and Health
// whether another could be made. The examples of this package have such a provider
// in one file.
//
// Build it, have it checked against the contract, and put it into the plugin_dir of
// a broker, where a block with its name is enough:
//
//	go build -o plugins/mine .
//	sandbox-broker plugin verify plugins/mine
//
//	provider "mine" {}
//
// docs/writing-a-provider.md walks through a complete provider in this way,
// examples/bubblewrap-provider. For an author's own tests there is the conformance
// suite, providertest.
//
// # Further abilities
//
// Each is a further interface in a file of its own, listed in capability.go: Files,
// Commands, Contexts and so on. Serve finds by itself which of them a provider
// implements, and the broker refuses the others with CodeNotSupported. Closer and
// Drainer are for providers that hold something.
//
// # Settings
//
// Description.Schema lists the settings that an operator writes into the
// provider block. The broker checks them against the schema before Configure
// sees them; Settings.Decode copies them into a struct.
//
// # What an execution is
//
// Code runs as a fresh interpreter process; files under /workspace stay for the
// life of the instance, variables do not. Standard input is empty.
//
// With Arguments, the code must define main, which is called as
// main(**arguments) in Python (sync or async) and as main(arguments) in
// JavaScript (its promise is awaited). What it returns comes back as JSON in
// ExecuteResult.Result; what the code prints stays in stdout, untouched. Where
// JavaScript has no main at its top level, it is what the module exports, or the
// main of that, or of its default.
//
// Without Arguments, main is called as main() if the code defines a top-level
// main and neither calls it nor has a __main__ guard; else the code is a plain
// script, and Result is nil.
//
// A wrong signature, a missing main or a return value that is not JSON is the
// code's own failure: StatusFailed, an exit code that is not zero, and a
// traceback in stderr. Bash has no main; Arguments for it are refused with
// CodeInvalidRequest and the field "arguments".
//
// A timeout kills every process of that execution, gives StatusTimeout with the
// output so far, and leaves the instance usable.
//
// # Errors
//
// An Error has a Code from CodeTable and reaches the agent with it. What became
// of code that was taken on is never an error but an ExecuteResult.
//
// # Remote services
//
// Packages below this one have what providers of services in a cloud need:
// program keeps the contract above with a remote interpreter, retry repeats calls,
// redact blanks secrets.
//
// # Sandboxes on this machine
//
// Package localfiles keeps the contract of Files and its neighbours for instances
// whose files are directories, and glob matches their globs. Package localcommands keeps
// that of Commands for programs that are processes of this machine, and processtree ends
// such a program with all that it has started.
//
// # What is elsewhere
//
// The package knows nothing of gRPC or of plugin processes. Package serve puts a provider
// behind them, and package wire says how the types of this package cross the connection.
// It depends on hclog and mapstructure, and on nothing of the broker.
package sdk
