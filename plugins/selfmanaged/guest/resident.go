package guest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// setUpBound is how long an interpreter may take to become a context.
const setUpBound = 10 * time.Second

// endGrace is how long an interpreter that says no more may take to end by itself.
const endGrace = 300 * time.Millisecond

// resident is the living interpreter of a context, with those who read from it.
type resident struct {
	process    *process
	guarded    *memory.Guarded
	output     [2]*tap
	frames     chan frames.Frame // closed when there are no more
	wants      atomic.Pointer[func(frames.Frame) bool]
	executions int64 // of whoever has the turn

	ended    chan struct{} // closed when it and all that it started have gone
	exit     isolation.Exit
	whole    bool // exit is known: nobody killed it together with its init
	oom      bool // it used more memory than the sandbox has
	closeOne sync.Once
}

// setUp is the first request of a context.
type setUp struct {
	Context struct {
		Cwd string            `json:"cwd"`
		Env map[string]string `json:"env"`
	} `json:"context"`
}

// startResident starts an interpreter, or takes the one that waits for an
// execution, and makes a context of it.
func startResident(ctx context.Context, c *codeContext) (*resident, error) {
	p, payload, err := c.start()
	if err != nil {
		return nil, startError(err)
	}
	r := &resident{process: p, guarded: c.guard.Watch(p), frames: make(chan frames.Frame), ended: make(chan struct{})}
	r.want(nil)
	r.output = [2]*tap{newTap(p.stdout), newTap(p.stderr)}
	go r.read()
	go r.reap()

	if err := r.send(payload); err != nil {
		r.close()
		return nil, startError(err)
	}
	timer := time.NewTimer(setUpBound)
	defer timer.Stop()
	select {
	case f, ok := <-r.frames:
		switch {
		case !ok:
			err = startError(errors.New("it ended at once"))
		case f.Refused != "":
			err = sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "%.200q cannot be entered: %s", c.cwd, f.Refused)
		default:
			return r, nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = startError(fmt.Errorf("it was not ready within %s", setUpBound))
	}
	r.close()
	return nil, err
}

// start starts an interpreter, or takes the one that waits for an execution. The
// payload makes a context of it.
func (c *codeContext) start() (p *process, payload []byte, err error) {
	if c.language == Bash {
		p, err = c.interpreters.startShell()
		return p, shellSetUp(c.cwd, c.env), err
	}
	var first setUp
	first.Context.Cwd, first.Context.Env = c.cwd, c.env
	if payload, err = line(first); err != nil {
		return nil, nil, err
	}
	defer c.interpreters.replace(c.language)
	p, err = c.interpreters.take(c.language)
	return p, payload, err
}

// send writes a request, which the interpreter takes as a whole before it does
// anything else. One that does not, blocks until it is killed.
func (r *resident) send(payload []byte) error {
	_, err := r.process.request.Write(payload)
	return err
}

// want sets which frames are worth their data; nil for none.
func (r *resident) want(wants func(frames.Frame) bool) {
	if wants == nil {
		wants = func(frames.Frame) bool { return false }
	}
	r.wants.Store(&wants)
}

// read hands on what the runner reports.
func (r *resident) read() {
	defer close(r.frames)
	reader := frames.NewReader(r.process.result)
	for {
		f, err := reader.Next(func(f frames.Frame) bool { return (*r.wants.Load())(f) })
		if err != nil {
			// It is about to end. If not, the code has closed the channel or written
			// nonsense, and behind that nothing can be understood: without its
			// runner the context is of no use.
			select {
			case <-r.ended:
			case <-time.After(endGrace):
				r.process.Kill()
			}
			return
		}
		select {
		case r.frames <- f:
		case <-r.ended:
			return
		}
	}
}

// reap waits for the end of the interpreter and of all that it started.
func (r *resident) reap() {
	r.exit, r.whole = r.process.Exit()
	r.oom = r.guarded.EndedForMemory(r.exit, r.whole)
	r.process.Kill()
	r.process.waitGone()
	close(r.ended)
}

// whyEnded says why it has ended by itself.
func (r *resident) whyEnded() string {
	switch {
	case r.oom:
		return "the context used more memory than the sandbox has"
	case r.whole:
		return fmt.Sprintf("the interpreter of the context ended with exit code %d", r.exit.Code)
	default:
		return "the interpreter of the context was killed"
	}
}

// close ends it, and returns when nothing is left.
func (r *resident) close() {
	r.closeOne.Do(func() {
		r.process.Kill()
		<-r.ended
		for _, t := range r.output {
			<-t.ended
		}
		for range r.frames { //nolint:revive // until it is closed
		}
		r.guarded.Release()
		r.process.wait()
	})
}
