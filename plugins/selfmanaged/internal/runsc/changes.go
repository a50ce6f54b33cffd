package runsc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/tail"
)

const noOverlay = "--overlay2=none"

// flagsFor are the flags of all commands about a sandbox.
func (r *Runtime) flagsFor(of Template) []string {
	if of.Writable == nil {
		return r.flags
	}
	flags := slices.Clone(r.flags)
	flags[slices.Index(flags, noOverlay)] = fmt.Sprintf("--overlay2=root:dir=%s,size=%dm", of.Writable.Dir, of.Writable.MB)
	return flags
}

// ErrNoChanges is the error of reading Changes where runsc cannot say all of them.
var ErrNoChanges = errors.New("runsc tar does not come to its end")

// Changes are what was written to the root file system of a sandbox that has a Writable, as a
// tar archive in gVisor's own form: what was removed is a character device with the numbers 0
// and 0, and a directory that hides what was there before has an extended attribute. The
// archive is what the sandbox says, and may be anything. The caller closes it, which ends the
// reading.
func (s *Sandbox) Changes(ctx context.Context) (io.ReadCloser, error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &changes{File: ours, cancel: cancel}
	// Its standard output has words of its own before the archive.
	c.cmd = exec.CommandContext(ctx, s.runtime.binary, slices.Concat(s.flags, []string{"tar", "rootfs-upper", "--file=/proc/self/fd/3", s.ID})...)
	c.cmd.Env, c.cmd.Dir = s.cmd.Env, "/"
	c.cmd.WaitDelay = exitGrace
	c.cmd.ExtraFiles = []*os.File{theirs}
	c.cmd.Stdout, c.cmd.Stderr = &c.said, &c.said
	err = c.cmd.Start()
	if err = errors.Join(err, theirs.Close()); err != nil {
		cancel()
		return nil, errors.Join(err, ours.Close())
	}
	return c, nil
}

// changes is an archive that is being read.
type changes struct {
	*os.File
	cmd    *exec.Cmd
	cancel context.CancelFunc
	said   tail.Buffer
	ended  sync.Once
	err    error
}

// Read has the end of the archive be an error where it is not whole.
func (c *changes) Read(p []byte) (int, error) {
	n, err := c.File.Read(p)
	if errors.Is(err, io.EOF) {
		if c.end(); c.err != nil {
			return n, c.err
		}
	}
	return n, err
}

func (c *changes) end() {
	c.ended.Do(func() {
		if err := c.cmd.Wait(); err != nil {
			c.err = fmt.Errorf("%w: %w: %s", ErrNoChanges, err, strings.TrimSpace(c.said.String()))
		}
	})
}

// Close ends the reading, wherever it is.
func (c *changes) Close() error {
	c.cancel()
	err := c.File.Close()
	c.end()
	return err
}
