// Package kernel runs the code of contexts in the kernels of a service, such as Jupyter's:
// it has the time limit, interrupts and restarts, and says what became of the code. What a
// service lets be done with its kernels is a Kernel, of each provider.
package kernel

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Kernel is the kernel of a context, for one execution in it.
type Kernel interface {
	// Ready prepares the kernel for the execution. Nothing of the code has run when it fails.
	Ready(ctx context.Context) error
	// Before and After are cells of our own around those of the execution; empty for none.
	Before() string
	After() string
	// Call is the cell that calls main.
	Call() string
	// Cell runs a cell, passes on what it does, and says whether it has come to its end. If it
	// has not by the end of ctx, it may go on. An error of event is returned.
	Cell(ctx context.Context, code string, event func(Event) error) (ended bool, err error)
	// Drain passes on what was held back, and returns what main returned; nil for nothing.
	Drain(ctx context.Context, event func(Event) error) (json.RawMessage, error)
	// Interrupt does to the code what Ctrl-C does, and says whether that can be.
	Interrupt(ctx context.Context) bool
	// Watch returns when the cells are over. If what runs them has ended before, it calls
	// giveUp.
	Watch(over <-chan struct{}, giveUp func())
	// Died says how what runs the cells has ended, if that is why a cell has failed.
	Died(ctx context.Context, err error) (Death, bool)
	// Settled adds to the result of code that came to its end what an error of the service's
	// own means.
	Settled(ctx context.Context, failed Error, result *Result) error
	// Restart ends what runs in the kernel, and forgets its state.
	Restart(ctx context.Context) error
	// Gone is closed when the kernel is, whoever has ended it. Lost says then what that is
	// to the broker; nil if the context goes on with another one.
	Gone() <-chan struct{}
	Lost() error
	// Class says what a failure of Cell means.
	Class(err error) Class
	// Explain makes an error of the broker of one of the service.
	Explain(ctx context.Context, err error) error
}

// Class of the failure of a cell.
type Class int

// The classes.
const (
	// Failed is an answer: nothing of the cell runs any more.
	Failed Class = iota
	// Refused is one for which nothing of the cell has run either.
	Refused
	// Open is that nobody knows: the cell may run.
	Open
	// TimedOut is that the service has ended it at a limit of its own.
	TimedOut
)

// Event is something that a cell did: one of its fields is set.
type Event struct {
	Stdout, Stderr []byte
	Value          *Value
	Error          *Error
}

// Value is one that a cell shows, in several forms, by MIME type.
type Value struct {
	// Main says that it is the value of the last expression.
	Main  bool
	Forms map[string][]byte
}

// Death is the end of what runs the cells.
type Death struct {
	Exit int
	// Memory says that it had no more of it.
	Memory bool
}

const (
	// interrupting bounds what is done to interrupt code, ending what is done to end it.
	interrupting = 10 * time.Second
	ending       = 30 * time.Second
)

// What a result says of a context that has lost its state.
const (
	Unstoppable = "the context starts afresh: the code could not be stopped otherwise"
	Ended       = "the interpreter has ended; the context starts afresh"
	Killed      = "the interpreter was killed for want of memory; the context starts afresh"
	restarted   = "the context was restarted"
	noResult    = "the result did not arrive: the code ended the interpreter itself, or the service has cut the output"
)

// Error is how a cell failed, as the language has it.
type Error struct{ Name, Value, Traceback string }

// exitCode is that of a process that ends with such an error.
func (e Error) exitCode() int {
	switch e.Name {
	case "SystemExit":
		if e.isQuiet() {
			code, _ := strconv.Atoi(e.Value) // of None and nothing it is 0
			return code & 0xff
		}
	case "KeyboardInterrupt":
		return 128 + 2
	}
	return 1
}

// isQuiet says whether an exit has a number, or nothing to say.
func (e Error) isQuiet() bool {
	_, err := strconv.Atoi(e.Value)
	return err == nil || e.Value == "" || e.Value == "None"
}

// colours are what terminals show as such.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// shown is what a process would print at its end. A cell of our own, which is no part of
// the code, is shown as the call that it makes.
func (e Error) shown(own string) string {
	text := strings.TrimRight(colours.ReplaceAllString(e.Traceback, ""), "\n")
	// Some services put the lines of a traceback together without what ends them.
	if last := e.Name + ": " + e.Value; e.Name != "" {
		if before, ok := strings.CutSuffix(text, last); ok && before != "" && !strings.HasSuffix(before, "\n") {
			text = before + "\n" + last
		}
		// A SyntaxError says more in its value than in the traceback, behind the caret.
		if before, after, ok := strings.Cut(text, "^"+e.Name+": "); ok && !strings.Contains(after, "\n") {
			text = before + "^\n" + e.Name + ": " + after
		}
	}
	if own != "" {
		text = strings.ReplaceAll(text, own, "main(…)")
	}
	switch {
	case e.Name == "SystemExit" && e.isQuiet():
		return ""
	case e.Name == "SystemExit":
		text = e.Value
	case text == "" && e.Name != "":
		text = e.Name + ": " + e.Value
	}
	if text == "" {
		return ""
	}
	return text + "\n"
}
