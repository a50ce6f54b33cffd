package runsc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
)

// Image is a sandbox at rest, of which any number can be started: its processes,
// in the middle of what they did, and their memory.
type Image struct {
	runtime *Runtime
	dir     string
	root    string // the root file system that it was made with
	env     []string
}

// Gone reports whether no copy can be started any more, since somebody has removed the
// image or the root file system that it needs.
func (i *Image) Gone() bool {
	root, err := i.runtime.prepare()
	_, missing := os.Stat(i.dir)
	return err != nil || missing != nil || root.dir != i.root
}

// Remove removes the image. What was started from it goes on.
func (i *Image) Remove() error { return os.RemoveAll(i.dir) }

// MakeImage makes an image of a sandbox whose guest has prepared itself as env
// says. ID is one as for Start. It lives as long as the runtime, or until Remove.
func (r *Runtime) MakeImage(ctx context.Context, id string, env []string) (_ *Image, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("runsc does that for root only")
	}
	root, err := r.prepare()
	if err != nil {
		return nil, err
	}
	s, err := r.start(id, env, r.usual(), "run")
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := s.Destroy(context.WithoutCancel(ctx)); err == nil {
			err = e
		}
	}()
	if err := s.waitPrepared(ctx); err != nil {
		return nil, fmt.Errorf("prepare the sandbox: %w: %s", err, strings.TrimSpace(s.Stderr()))
	}
	image := &Image{runtime: r, dir: filepath.Join(r.images, id), root: root.dir, env: env}
	if err := os.Mkdir(image.dir, 0o700); err != nil {
		return nil, err
	}
	if err := r.checkpoint(ctx, s, image.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(image.dir))
	}
	return image, nil
}

// waitPrepared reads the byte with which the guest says that it is prepared.
func (s *Sandbox) waitPrepared(ctx context.Context) error {
	// A read from a sandbox that hangs ends with its connection.
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	var b [1]byte
	if _, err := io.ReadFull(s.conn, b[:]); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	if b[0] != guest.Prepared {
		return errors.New("the guest speaks another protocol than the plugin: install both from one build")
	}
	return nil
}

// checkpoint writes the state of a sandbox to a directory, which ends it.
func (r *Runtime) checkpoint(ctx context.Context, s *Sandbox, dir string) error {
	cmd := exec.CommandContext(ctx, r.binary, append(append([]string{}, r.flags...), "checkpoint", "--image-path="+dir, s.ID)...)
	cmd.Env, cmd.Dir = s.cmd.Env, "/"
	cmd.WaitDelay = exitGrace
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("runsc checkpoint: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// StartImage is Start for a copy of an image. Unlike another sandbox it does not
// end with its gofer, the process that opened its files: all that it may read is
// open already.
func (r *Runtime) StartImage(id string, image *Image) (*Sandbox, error) {
	return r.start(id, image.env, r.usual(), "restore", "--image-path="+image.dir)
}
