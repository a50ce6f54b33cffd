package cloud

import (
	"maps"
	"slices"
	"time"
)

// Kind of an effect.
type Kind string

// The kinds.
const (
	Created  Kind = "created"
	Executed Kind = "executed" // began to
	Ended    Kind = "ended"    // an execution
	Gone     Kind = "destroyed"
	Started  Kind = "started"  // a command
	Typed    Kind = "typed"    // a program, into a shell
	Wrote    Kind = "wrote"    // a file
	Made     Kind = "made"     // a directory
	Prepared Kind = "prepared" // a context
	Paused   Kind = "paused"
	Resumed  Kind = "resumed"
	Kept     Kind = "kept" // as a snapshot
	Dropped  Kind = "dropped"
	Allotted Kind = "allotted" // a volume
	Freed    Kind = "freed"
	Built    Kind = "built" // a template
	// Discarded is a template that nothing is made of any more.
	Discarded Kind = "discarded"
	// Killed is a client, and with it what it was doing.
	Killed Kind = "killed"
)

// Effect is what has really happened.
type Effect struct {
	At       time.Time
	Kind     Kind
	Instance Instance
	// Execution and Program are those of an execution.
	Execution string
	Program   Program
	// Argv is that of a command, whose Program is in it, and Path that of a file or a directory.
	Argv []string
	Path string
	// Snapshot, Volume and Template are what was made, or is no more.
	Snapshot Snapshot
	Volume   Volume
	Template Template
	// Process is that of the client, as it says, and Broker the one that started it.
	Process, Broker string
	// Cloud is the name of the one where it happened.
	Cloud string
}

// Effects returns all that has happened, in order.
func (c *Cloud) Effects() []Effect {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

// Alive returns what there is, listed or not.
func (c *Cloud) Alive() []Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.alive))
}

// note adds an effect. The caller holds mu.
func (c *Cloud) note(e Effect) {
	e.At, e.Cloud = time.Now(), c.name
	c.log = append(c.log, e)
}

// Killing notes that a client is about to be killed.
func (c *Cloud) Killing(process string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(Effect{Kind: Killed, Process: process})
}
