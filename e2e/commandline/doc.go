// Package commandline holds tests of the command line against a real broker with real
// sandboxes: what people type, with a terminal where they have one.
//
// Not here: what a command does with answers that no real broker gives; those tests stand
// beside the commands.
package commandline
