// Package remote is the kit for providers whose sandboxes are in a cloud: what does not
// depend on whose cloud it is. A provider translates between it and the API of its service,
// and adds what differs: how sandboxes are made, found, kept alive and ended.
//
//   - This package: executions by their IDs, names.
//   - supervise: the supervisor of each program in a sandbox, and what its report means.
//   - stream, place: the two ways to run programs under it: where the service streams what
//     a process prints, and where it only runs short commands.
//   - guestfiles: the files of a sandbox, with the rights of its user.
//   - artifacts: the files that an execution has made.
//   - contexts: the books of the contexts, and whose turn it is in each.
//   - kernel: the cells that run in the kernels of a service.
//   - cells: kernels of our own, where the service has none.
//   - bridge: connections to ports, where the service passes on HTTP alone.
//   - frames: messages of our own among the output of a program.
//
// See docs/remote-providers.md for which part a new provider needs.
package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// Executions are those that run now, by their IDs. It implements sdk.Interrupter; a
// provider embeds it. The zero value has none.
type Executions struct {
	mu  sync.Mutex
	all map[executionName]*Execution
}

var _ sdk.Interrupter = (*Executions)(nil)

// executionName is unique among those that run.
type executionName struct{ instance, id string }

// Execution is one that runs.
type Execution struct {
	mu          sync.Mutex
	interrupt   func(context.Context) error
	interrupted bool
	asked       bool
}

// Begin makes an execution known, until end is called.
func (e *Executions) Begin(req sdk.ExecuteRequest) (one *Execution, end func()) {
	name := executionName{req.InstanceID, req.ExecutionID}
	one = &Execution{}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[executionName]*Execution{}
	}
	e.all[name] = one
	return one, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.all[name] == one {
			delete(e.all, name)
		}
	}
}

// Interrupt implements sdk.Interrupter. Who asks twice has asked once.
func (e *Executions) Interrupt(ctx context.Context, instanceID, executionID string) error {
	e.mu.Lock()
	one := e.all[executionName{instanceID, executionID}]
	e.mu.Unlock()
	interrupt, first := one.ask()
	switch {
	case interrupt == nil:
		return sdk.Errorf(sdk.CodeNotFound, "no such execution is running")
	case !first:
		return nil
	}
	err := interrupt(ctx)
	if err != nil {
		one.mu.Lock()
		one.asked = false
		one.mu.Unlock()
	}
	return err
}

// ask returns what interrupts it, nil if that cannot be done yet, and whether nobody has
// asked before.
func (e *Execution) ask() (interrupt func(context.Context) error, first bool) {
	if e == nil {
		return nil, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.interrupt == nil {
		return nil, false
	}
	first = !e.asked
	e.asked, e.interrupted = true, true
	return e.interrupt, first
}

// Reached says that the code runs, and what interrupts it.
func (e *Execution) Reached(interrupt func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.interrupt = interrupt
}

// Interrupted says whether anybody has asked.
func (e *Execution) Interrupted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.interrupted
}

// Again makes a call that may be made twice until it succeeds, or its policy ends. worth
// says whether another try is worth it after an error, and what pause the service asks for.
func Again[T any](ctx context.Context, policy retry.Policy, worth func(error) (after time.Duration, again bool), call func(context.Context) (T, error)) (T, error) {
	return retry.Do(ctx, policy, func(ctx context.Context) (T, error) {
		value, err := call(ctx)
		if err == nil || ctx.Err() != nil {
			return value, err
		}
		if after, again := worth(err); again {
			return value, retry.Again(err, after)
		}
		return value, err
	})
}

// NotSent says that there was not even a connection.
func NotSent(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// Pause waits, or returns why not.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Workspace is where code works by the contract.
const Workspace = "/workspace"

// NewName is one that nobody has used before: 24 hexadecimal digits.
func NewName() string {
	random := make([]byte, 12)
	_, _ = rand.Read(random) // never fails, by its documentation
	return hex.EncodeToString(random)
}
