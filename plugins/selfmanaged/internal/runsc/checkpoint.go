package runsc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoRoom is for a checkpoint that has no room in the file system in memory.
var ErrNoRoom = errors.New("there is no room for it in memory")

// ErrUnlike is for a copy that would have other file systems or limits than the original.
var ErrUnlike = errors.New("the checkpoint is of a sandbox with other file systems or limits")

// Checkpoint is a sandbox as it was at a moment, in files of a file system in memory that
// ends with the process. Any number of copies can be started from it.
type Checkpoint struct {
	runtime *Runtime
	name    string
	token   []byte
	like    string
	// original has the memory of the files in its control group; nil if they were written
	// by this process.
	original *Sandbox
}

// CheckpointFiles are the names of the files, which are runsc's.
var CheckpointFiles = []string{"checkpoint.img", "pages_meta.img", "pages.img"}

// CanCheckpoint says whether sandboxes can be checkpointed and restored here.
func (r *Runtime) CanCheckpoint() bool { return !r.rootless }

// Room says how many bytes of checkpoints there is room for.
func (r *Runtime) Room() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.starter.path(r.memory), &st); err != nil {
		return 0, fmt.Errorf("measure the file system in memory: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// NewCheckpoint makes room for the files of a checkpoint that comes from elsewhere; see
// Create. Token and like are its own. The caller owes a Remove.
func (r *Runtime) NewCheckpoint(name string, token []byte, like string) (*Checkpoint, error) {
	c := &Checkpoint{runtime: r, name: name, token: bytes.Clone(token), like: like}
	if err := os.Mkdir(c.dir(), 0o700); err != nil {
		return nil, fmt.Errorf("make room for a checkpoint: %w", err)
	}
	return c, nil
}

// dir is where this process finds the files.
func (c *Checkpoint) dir() string { return c.runtime.starter.path(c.theirs()) }

// theirs is where the children of the starter find them.
func (c *Checkpoint) theirs() string { return filepath.Join(c.runtime.memory, c.name) }

// Create makes one of the CheckpointFiles.
func (c *Checkpoint) Create(file string) (*os.File, error) {
	return os.OpenFile(filepath.Join(c.dir(), file), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// Open opens one of the CheckpointFiles.
func (c *Checkpoint) Open(file string) (*os.File, error) {
	return os.Open(filepath.Join(c.dir(), file))
}

// Token is what the guest of a copy expects.
func (c *Checkpoint) Token() []byte { return c.token }

// Like identifies the file systems and limits of the sandbox, which a copy must have too.
func (c *Checkpoint) Like() string { return c.like }

// Bytes is what the files take.
func (c *Checkpoint) Bytes() (int64, error) {
	var sum int64
	for _, file := range CheckpointFiles {
		info, err := os.Stat(filepath.Join(c.dir(), file))
		if err != nil {
			return 0, fmt.Errorf("measure a checkpoint: %w", err)
		}
		sum += info.Size()
	}
	return sum, nil
}

// Remove removes the files. Copies that have started go on.
func (c *Checkpoint) Remove() error {
	err := os.RemoveAll(c.dir())
	if c.original != nil {
		c.original.lend(-1)
	}
	return err
}

// Checkpoint writes down what the sandbox is at this moment; it runs on. Its guest expects
// the token. The name is new, and the caller owes a Remove.
func (s *Sandbox) Checkpoint(ctx context.Context, name string, token []byte) (_ *Checkpoint, err error) {
	c, err := s.runtime.NewCheckpoint(name, token, s.like)
	if err != nil {
		return nil, err
	}
	// The sandbox writes the files itself, so they are memory of its control group.
	c.original = s
	s.lend(1)
	// Its programs stand still meanwhile, the shorter the more processors it has.
	defer s.unbounded()()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Remove())
		}
	}()
	cmd := exec.CommandContext(ctx, s.runtime.binary, append(append([]string{}, s.runtime.flags...),
		"checkpoint", "--leave-running", "--exclude-committed-zero-pages", "--image-path="+c.theirs(), s.ID)...)
	cmd.Env, cmd.Dir = s.cmd.Env, "/"
	cmd.WaitDelay = exitGrace
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err = s.runtime.starter.start(cmd); err != nil {
		return nil, fmt.Errorf("runsc checkpoint: %w", err)
	}
	if err = cmd.Wait(); err == nil {
		return c, nil
	}
	said := strings.TrimSpace(stderr.String())
	err = fmt.Errorf("runsc checkpoint: %w: %s", err, said)
	if strings.Contains(said, unix.ENOSPC.Error()) {
		err = errors.Join(ErrNoRoom, err)
	}
	return nil, err
}

// lend has the control group of the sandbox hold n checkpoints more beside the sandbox.
func (s *Sandbox) lend(n int64) {
	if s.group == nil {
		return
	}
	s.lending.Lock()
	defer s.lending.Unlock()
	s.lent += n
	memory := s.group.Limits().MemoryBytes
	// Less than is in use, which files hold that are just being freed, the kernel refuses or
	// kills for: then it stays at what it was, which the next change mends.
	if err := s.group.SetMemory(memory * (1 + s.lent)); err != nil {
		s.runtime.logger.Debug("the limit on memory of a sandbox stays as it was", "sandbox", s.ID, "error", err)
	}
}

// unbounded gives the sandbox as much processor time as there is, until the returned
// function is called: for what gVisor itself does, while no program runs in it.
func (s *Sandbox) unbounded() (bounded func()) {
	if s.group == nil || s.group.Limits().CPUs <= 0 {
		return func() {}
	}
	set := func(cpus float64) {
		if err := s.group.SetCPUs(cpus); err != nil && !errors.Is(err, fs.ErrNotExist) { // it has ended
			s.runtime.logger.Warn("the limit on processor time of a sandbox stays as it was", "sandbox", s.ID, "error", err)
		}
	}
	set(0)
	return func() { set(s.group.Limits().CPUs) }
}

// StartCheckpoint starts a copy, as StartTemplate does a sandbox; nil is for one without a
// template. Its connection is a new one once this has returned; when ctx ends before, the copy is
// ended.
func (r *Runtime) StartCheckpoint(ctx context.Context, id string, c *Checkpoint, of *Template) (*Sandbox, error) {
	usual := r.usual()
	s, err := r.start(id, nil, *cmp.Or(of, &usual), "restore", "--background", "--image-path="+c.theirs())
	if err != nil {
		return nil, err
	}
	if s.like != c.like {
		return nil, errors.Join(ErrUnlike, s.Destroy(context.WithoutCancel(ctx)))
	}
	bounded := s.unbounded()
	err = takeOver(ctx, s, c.token)
	bounded()
	if err != nil {
		err = fmt.Errorf("start a copy: %w: %s", err, strings.TrimSpace(s.Stderr()))
		return nil, errors.Join(ctx.Err(), err, s.Destroy(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// takeOver waits until the guest of a copy speaks over its new connection.
func takeOver(ctx context.Context, s *Sandbox, token []byte) error {
	end := func() { _ = s.conn.Close() }
	defer context.AfterFunc(ctx, end)()
	over := make(chan struct{})
	defer close(over)
	go func() { // which has an end: over, at the latest
		select {
		case <-s.exited:
			end()
		case <-over:
		}
	}()
	return s.conn.TakeOver(token)
}
