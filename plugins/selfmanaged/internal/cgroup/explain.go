package cgroup

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// cannotMake says why no group can be made, and what to do about it. Where the
// groups would have been is left out: tenants may read it.
func cannotMake(err error) error {
	switch {
	case errors.Is(err, unix.EROFS):
		return errors.New("the cgroup file system is mounted read-only, as in most containers: mount it writable")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("the broker's user may not make cgroups: run the broker as root")
	default:
		return fmt.Errorf("make cgroups: %w", cause(err))
	}
}

// cannotPassOn says why the controllers are not to be had, on version 2.
func cannotPassOn(err error) error {
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission):
		return cannotMake(err)
	case errors.Is(err, unix.EBUSY):
		return errors.New("processes at the root of the cgroups keep the controllers memory, cpu and pids from being passed on, as in a container with a cgroup namespace of its own: give the container that of the host")
	default: // ENOENT above all
		return fmt.Errorf("the cgroup controllers memory, cpu and pids are not all enabled on this machine (%w): enable them at the kernel's command line, or pass them on to the container", cause(err))
	}
}

// cause is an error without the path.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
