package provider

import (
	"bytes"
	"context"
	"errors"
	"strconv"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
)

// kernelUser is who kernels belong to; envd takes any user's name.
const kernelUser = "root"

// findKernel learns the PID of what runs the cells, once for each kernel: Python is sure to
// go on after a SIGINT, and that JavaScript has ended is told by nobody else. The code
// interpreter itself interrupts nothing that it can be relied upon for.
func (c *codeContext) findKernel(ctx context.Context) error {
	c.mu.Lock()
	known := c.pid != 0
	c.mu.Unlock()
	show := cell.ShowPID(c.state.Language)
	if known || show == "" {
		return nil
	}
	var text bytes.Buffer
	err := c.sb.interpreter().Execute(ctx, c.state.ID, show, func(ev kernel.Event) error {
		text.Write(ev.Stdout)
		return nil
	})
	if err != nil {
		return err
	}
	// Whatever the code has made of print, this is no more than a kernel without a PID.
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(text.Bytes()))); err == nil && pid > 1 {
		c.mu.Lock()
		c.pid = pid
		c.mu.Unlock()
	}
	return nil
}

// Interrupt implements kernel.Kernel.
func (r *cellRun) Interrupt(ctx context.Context) bool {
	r.c.mu.Lock()
	pid := r.c.pid
	r.c.mu.Unlock()
	if pid == 0 || r.c.gone.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	defer context.AfterFunc(r.c.gone, cancel)()
	err := r.c.sb.interruptKernel(ctx, pid)
	if err != nil {
		r.c.sb.p.logger.Debug("a kernel could not be interrupted; it is restarted", "sandbox", r.c.sb.id, "error", r.c.sb.p.failure(err))
	}
	return err == nil
}

// interruptKernel sends a SIGINT to a kernel and what it has started.
func (sb *sandbox) interruptKernel(ctx context.Context, pid int) error {
	program := envd.Program{Cmd: "/bin/sh", Args: []string{"-c", `kill -INT -- "-$0" 2>/dev/null || kill -INT "$0"`, strconv.Itoa(pid)}, Cwd: "/"}
	process, err := envd.New(sb.endpoint(envd.Port, sb.p.streams), kernelUser).Start(ctx, program, envd.StartOptions{Limit: stopTimeout})
	if err != nil {
		return err
	}
	defer process.Close()
	_, exit, err := collect(process)
	if err == nil && exit != 0 {
		err = errors.New("no such kernel")
	}
	return err
}
