// Package localcommands keeps the contract of sdk.Commands for instances whose programs
// are processes of this machine. A provider embeds Commands, and has the capability:
//
//	type Provider struct {
//		*localcommands.Commands
//		…
//	}
//
//	p.Commands = localcommands.New(localcommands.Options{Check: p.check, Start: p.startCommand})
//
// The provider starts programs, and says how they are signalled, killed and waited for:
// as a processtree.Tree, as the example shows, or in a PID namespace, as
// examples/bubblewrap-provider does. The package has everything else: what is known of a
// command and what became of it, the latest of its output by offset, readers that follow
// it, standard input, time limits, and the end of all commands with their instance.
//
// The provider calls EndCommands when it destroys an instance, as soon as Check does not
// know it any more, and EndAllCommands when it is closed.
//
// A command never waits for a reader: what a slow one misses is told by offsets. It has
// ended when its Process has, whoever has its pipes still open then.
//
// The package works on Linux only.
package localcommands
