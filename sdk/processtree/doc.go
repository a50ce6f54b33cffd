// Package processtree runs a program and ends it together with everything that it has
// started. It is for providers whose instances are processes of this machine.
//
// Each tree has a keeper between the plugin and the program: the plugin's own executable
// once more, which this package turns into a keeper before main begins. The keeper is a
// subreaper, so that whatever the program starts stays below it, with whatever session,
// group and environment. When the program ends, when Kill is called, or when the plugin
// is gone for whatever reason, the keeper ends all that is below it and then itself. That
// needs no rights beyond those of the user, and costs the memory of a small process for
// each tree.
//
// It is no sandbox. Code that runs as the plugin's user can kill the keeper, and then the
// program dies with it, but what the program has started goes on, until the broker ends
// the plugin. What became another user's, by a setuid program, cannot be killed. A
// provider that runs hostile code puts it into a PID namespace, as
// examples/bubblewrap-provider does.
//
// The package works on Linux only.
package processtree
