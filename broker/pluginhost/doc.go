// Package pluginhost finds, starts, watches, restarts and stops provider
// plugins.
//
// A Launcher starts one plugin and hands back a Process: started, its protocol
// agreed on, described, not yet configured. Supervise keeps a configured
// provider running on top of that: it configures each new process, probes its
// health, restarts it when it dies, and gives callers a provider whose errors
// name it. Start reading in launcher.go and supervise.go.
//
// go-plugin does the handshake and the gRPC connection. Everything that touches
// the process is our own runner (runner.go): death pipe, pipes for output, socket
// directory, checksum. Package watchdog ends a process with all that it has started. docs of go-plugin describe none of
// what can go wrong there; each fence says beside it what it is for.
//
// What a plugin says is hostile input. sdk/wire checks its answers, this package
// its handshake and its log.
//
// Routing, instances and tenants live elsewhere. The package works on Linux
// only: it needs /proc, subreapers and SO_PEERCRED.
package pluginhost
