// Package provider is the sandbox provider for E2B and clouds that speak its protocol.
//
// An instance is a sandbox. An execution is a process in it, held by package
// supervisor; a context is a kernel of the code interpreter. The clients of the three
// servers are in the packages control, envd and interpreter; here is what the broker
// wants of them, in this order to read: provider.go, sandbox.go, create.go, run.go,
// execute.go. failure.go says which error of theirs is which of the broker's.
package provider
