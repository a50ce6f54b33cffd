// Command bubblewrap is a sandbox provider: it runs code as local processes under
// bubblewrap (bwrap), in Linux namespaces, with a directory of its own for each
// instance.
//
// It is an example, to be read from here in this order: provider.go has the seven
// methods, store.go where instances are kept, execute.go how code runs, sandbox.go and
// process.go what bwrap is told and does, files.go where the files are that code sees,
// commands.go how programs run that outlive a call.
// README.md says what the sandbox holds and what it does not.
package main

import "github.com/sandbox-broker/sandbox-broker/sdk/serve"

func main() { serve.Serve(New) }
