package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bwrapCall is a call of bwrap in the making.
type bwrapCall struct {
	options []string
	files   []*os.File // that bwrap gets, from descriptor 3 on
	err     error      // that came in between
}

func (c *bwrapCall) option(words ...string) { c.options = append(c.options, words...) }

// give hands an open file over to bwrap and returns its descriptor there.
func (c *bwrapCall) give(f *os.File) (descriptor string) {
	c.files = append(c.files, f)
	return strconv.Itoa(len(c.files) + 2)
}

// content gives bwrap a text to read.
func (c *bwrapCall) content(text string) (descriptor string) {
	fd, err := unix.MemfdCreate("content", unix.MFD_CLOEXEC)
	if err != nil {
		c.err = errors.Join(c.err, err)
		return ""
	}
	f := os.NewFile(uintptr(fd), "content")
	_, writeErr := f.WriteString(text)
	_, seekErr := f.Seek(0, 0)
	c.err = errors.Join(c.err, writeErr, seekErr)
	return c.give(f)
}

// command returns what to start. The options travel by a descriptor, for everybody
// on the machine can read the command lines of processes. There is no environment,
// for that of the code is not bwrap's: it would obey an LD_PRELOAD.
func (c *bwrapCall) command(bwrap string, argv []string) (*exec.Cmd, error) {
	// A NUL ends an option: what is behind it would be one of its own.
	if slices.ContainsFunc(c.options, func(o string) bool { return strings.Contains(o, "\x00") }) {
		return nil, errors.New("an option has a NUL in it")
	}
	list := c.content(strings.Join(c.options, "\x00") + "\x00")
	cmd := exec.Command(bwrap, append([]string{"--args", list, "--"}, argv...)...)
	cmd.Env, cmd.ExtraFiles = []string{}, c.files
	return cmd, c.err
}

// close closes our side of what was given away.
func (c *bwrapCall) close() {
	for _, f := range c.files {
		f.Close()
	}
}
