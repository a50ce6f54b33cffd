package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/interpreter"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// kernelUser is who kernels belong to; envd takes any user's name.
const kernelUser = "root"

// findKernel learns the PID of what runs the cells, once for each kernel: Python is sure to
// go on after a SIGINT, and that JavaScript has ended is told by nobody else. The code
// interpreter itself interrupts nothing that it can be relied upon for.
func (p *Provider) findKernel(ctx context.Context, c *codeContext) error {
	c.mu.Lock()
	known := c.pid != 0
	c.mu.Unlock()
	show := cell.ShowPID(c.state.Language)
	if known || show == "" {
		return nil
	}
	var text bytes.Buffer
	err := p.interpreter(c.sb).Execute(ctx, c.state.ID, show, func(ev interpreter.Event) error {
		text.WriteString(ev.Stdout)
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

// stopSoftly waits until an execution is to be stopped, and then does to the code what
// Ctrl-C does. If that is of no use, giveUp is called, and the kernel is to be restarted.
// It returns when over ends.
func (r *cellRun) stopSoftly(stopping context.Context, over <-chan struct{}, giveUp func()) {
	select {
	case <-stopping.Done():
	case <-over:
		return
	}
	r.c.mu.Lock()
	pid := r.c.pid
	r.c.mu.Unlock()
	if pid == 0 || r.c.state.Language != sdk.Python || r.c.sb.gone.Err() != nil {
		giveUp()
		return
	}
	// Waited for, so that it does not hit what comes next.
	ctx, cancel := context.WithTimeout(r.c.sb.gone, stopTimeout)
	defer cancel()
	if err := r.p.interruptKernel(ctx, r.c.sb, pid); err != nil {
		r.p.logger.Debug("a kernel could not be interrupted; it is restarted", "sandbox", r.c.sb.id, "error", r.p.failure(err))
		giveUp()
		return
	}
	grace := time.NewTimer(r.p.patience.kernels)
	defer grace.Stop()
	select {
	case <-over:
	case <-grace.C:
		giveUp()
	case <-r.c.sb.gone.Done():
		giveUp()
	}
}

// interruptKernel sends a SIGINT to a kernel and what it has started.
func (p *Provider) interruptKernel(ctx context.Context, sb *sandbox, pid int) error {
	program := envd.Program{Cmd: "/bin/sh", Args: []string{"-c", `kill -INT -- "-$0" 2>/dev/null || kill -INT "$0"`, strconv.Itoa(pid)}, Cwd: "/"}
	process, err := envd.New(p.endpoint(sb, envd.Port, p.streams), kernelUser).Start(ctx, program, envd.StartOptions{Limit: stopTimeout})
	if err != nil {
		return err
	}
	defer process.Close()
	for exit := -1; ; {
		ev, err := process.Next()
		switch {
		case errors.Is(err, io.EOF) && exit == 0:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("no such kernel")
		case err != nil:
			return err
		case ev.End != nil:
			exit = ev.End.ExitCode
		}
	}
}
