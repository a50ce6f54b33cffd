package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/tail"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
)

// Bounds on the end of a sandbox.
const (
	// exitGrace is how long it may take to end by itself once its input has
	// ended.
	exitGrace = 500 * time.Millisecond
	// endTimeout is for what must be tried after the caller has gone.
	endTimeout = 10 * time.Second
	// memoryGrace is how long the news that memory was the reason may come
	// after the news of the end: the engine sends them independently. Only
	// sandboxes that something killed are waited for so.
	memoryGrace = 5 * time.Second
)

// killed is the exit status of what SIGKILL ended.
const killed = 128 + 9

// Sandbox is one running container.
type Sandbox struct {
	name    string
	runtime *Runtime
	conn    *stdio.Conn
	stderr  tail.Buffer

	paused      atomic.Bool
	outOfMemory chan struct{} // closed when the engine says so
	memoryOnce  sync.Once
	exited      chan struct{}
	status      int64 // valid after exited

	destroyOnce sync.Once
	destroyErr  error
}

// Start makes a sandbox and returns when its container runs; whoever speaks to
// the guest over Conn finds out when it is ready. ID must be new and [a-z0-9].
// The caller owes a Destroy.
func (r *Runtime) Start(ctx context.Context, id string) (*Sandbox, error) {
	s := &Sandbox{
		name: r.containerName(id), runtime: r,
		outOfMemory: make(chan struct{}), exited: make(chan struct{}),
	}
	r.mu.Lock()
	r.sandboxes[s.name] = s
	r.mu.Unlock()
	if err := s.start(ctx, id); err != nil {
		// Also when the creation failed: its answer may be lost, not its effect.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		return nil, errors.Join(err, s.Destroy(ctx))
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context, id string) error {
	engine := s.runtime.engine
	if err := s.runtime.installGuest(); err != nil {
		close(s.exited)
		return fmt.Errorf("install the guest: %w", err)
	}
	config, host := s.runtime.config(id)
	if _, err := engine.ContainerCreate(ctx, config, host, nil, nil, s.name); err != nil {
		close(s.exited)
		return s.runtime.explain(ctx, "create container", err)
	}
	// Asked before the start, or a container that ends at once is removed before
	// the question.
	gone, lost := engine.ContainerWait(s.runtime.life, s.name, container.WaitConditionRemoved)
	s.runtime.background.Go(func() {
		defer close(s.exited)
		select {
		case end := <-gone:
			s.status = end.StatusCode
		case err := <-lost:
			// The engine has gone, and the connection to the guest with it.
			s.status = -1
			if s.runtime.life.Err() == nil {
				s.runtime.o.Logger.Warn("the Docker Engine does not say any more how a container fares", "container", s.name, "error", err)
			}
		}
	})
	attached, err := engine.ContainerAttach(ctx, s.name, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return s.runtime.explain(ctx, "attach container", err)
	}
	stdout, theirs := io.Pipe()
	s.conn = stdio.NewConn(stdout, attached.Conn)
	s.runtime.background.Go(func() {
		_, err := stdcopy.StdCopy(theirs, &s.stderr, attached.Reader)
		_ = theirs.CloseWithError(err) // nil is the end of file
	})
	if err := engine.ContainerStart(ctx, s.name, container.StartOptions{}); err != nil {
		return s.runtime.explain(ctx, "start container", err)
	}
	return nil
}

// explain says what failed, and in one sentence why if it is something that the
// administrator can mend.
func (r *Runtime) explain(ctx context.Context, doing string, err error) error {
	if ctx.Err() == nil {
		if missing := r.Check(ctx); missing != nil {
			return missing
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Conn is the connection to the guest.
func (s *Sandbox) Conn() *stdio.Conn { return s.conn }

// Exited is closed when the sandbox has ended, for whatever reason.
func (s *Sandbox) Exited() <-chan struct{} { return s.exited }

// OutOfMemory reports whether the host's kernel ended it for memory. It waits
// for the end of the sandbox, or of ctx.
func (s *Sandbox) OutOfMemory(ctx context.Context) bool {
	select {
	case <-s.outOfMemory:
		return true
	case <-ctx.Done():
		return false
	case <-s.exited:
	}
	if s.status != killed {
		return false
	}
	grace := time.NewTimer(memoryGrace)
	defer grace.Stop()
	select {
	case <-s.outOfMemory:
		return true
	case <-grace.C:
	case <-ctx.Done():
	}
	return false
}

// Stderr is the last of what the guest wrote, for logs.
func (s *Sandbox) Stderr() string { return s.stderr.String() }

// Pause freezes every process of the sandbox.
func (s *Sandbox) Pause(ctx context.Context) error {
	if err := s.runtime.engine.ContainerPause(ctx, s.name); err != nil {
		return s.runtime.explain(ctx, "pause container", err)
	}
	s.paused.Store(true)
	return nil
}

// Resume lets the processes of the sandbox go on.
func (s *Sandbox) Resume(ctx context.Context) error {
	if err := s.runtime.engine.ContainerUnpause(ctx, s.name); err != nil {
		return s.runtime.explain(ctx, "unpause container", err)
	}
	s.paused.Store(false)
	return nil
}

// Destroy ends the sandbox and removes it. It may be called more than once; each
// call returns when the sandbox is gone.
func (s *Sandbox) Destroy(ctx context.Context) error {
	s.destroyOnce.Do(func() {
		s.destroyErr = s.destroy(ctx)
		s.runtime.mu.Lock()
		delete(s.runtime.sandboxes, s.name)
		s.runtime.mu.Unlock()
	})
	return s.destroyErr
}

func (s *Sandbox) destroy(ctx context.Context) error {
	if s.paused.Load() {
		// What is frozen does not die. If this fails, so does what follows.
		_ = s.Resume(ctx)
	}
	if s.conn != nil {
		_ = s.conn.Close() // the guest ends with its input
		grace := time.NewTimer(exitGrace)
		defer grace.Stop()
		select {
		case <-s.exited:
			if s.status >= 0 {
				return nil // and removed
			}
		case <-grace.C:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := s.runtime.remove(ctx, s.name); err != nil {
		return fmt.Errorf("remove container %s: %w", s.name, err)
	}
	select {
	case <-s.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %s is not gone after its removal: %w", s.name, ctx.Err())
	}
}
