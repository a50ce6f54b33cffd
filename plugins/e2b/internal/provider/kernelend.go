package provider

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// watchAfter is how long a cell may run before somebody looks whether what runs it is
// there yet: most are over before.
const watchAfter = 500 * time.Millisecond

// endScript waits for the end of a process and prints what it has written of it.
const endScript = `while kill -0 "$0" 2>/dev/null; do sleep 0.3; done; grep -qs 'heap out of memory' "$1" && echo memory || head -c 20 "$1" 2>/dev/null; rm -f "$1"`

// kernelEnd is how an interpreter has ended within a cell.
type kernelEnd struct {
	mu    sync.Mutex
	known bool
	exit  int
	// memory says that it had no more of it.
	memory bool
}

// told says whether it has ended.
func (k *kernelEnd) told() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known
}

// Watch implements kernel.Kernel. The interpreter of JavaScript is a child of its kernel, which does not notice, so that
// the code interpreter says nothing for ever.
func (r *cellRun) Watch(over <-chan struct{}, giveUp func()) {
	if language := r.c.state.Language; language != sdk.JavaScript && language != sdk.TypeScript {
		return
	}
	r.c.mu.Lock()
	pid := r.c.pid
	r.c.mu.Unlock()
	wait := time.NewTimer(watchAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-over:
		return
	}
	ctx, stop := context.WithCancel(r.c.sb.gone)
	defer stop()
	go func() {
		select {
		case <-over:
			stop()
		case <-ctx.Done():
		}
	}()
	text, err := r.c.awaitEnd(ctx, pid, r.req.Timeout)
	if err != nil || ctx.Err() != nil || pid == 0 {
		return
	}
	r.end.mu.Lock()
	r.end.known, r.end.exit, r.end.memory = true, 128+9, bytes.HasPrefix(text, []byte("memory"))
	if code, found := bytes.CutPrefix(text, []byte("exit ")); found {
		if exit, err := strconv.Atoi(string(bytes.TrimSpace(code))); err == nil {
			r.end.exit = exit & 0xff
		}
	}
	r.end.mu.Unlock()
	giveUp()
}

// awaitEnd waits for the end of the interpreter of a context.
func (c *codeContext) awaitEnd(ctx context.Context, pid int, within time.Duration) ([]byte, error) {
	program := envd.Program{Cmd: "/bin/sh", Args: []string{"-c", endScript, strconv.Itoa(pid), c.endFile()}, Cwd: "/"}
	process, err := envd.New(c.sb.endpoint(envd.Port, c.sb.p.streams), kernelUser).Start(ctx, program, envd.StartOptions{Limit: within + envdGrace})
	if err != nil {
		return nil, err
	}
	defer func() {
		process.Close()
		if ctx.Err() != nil { // it waits yet
			c.sb.endProcess(process.PID)
		}
	}()
	text, _, err := collect(process)
	return text, err
}

// endProcess ends a process of ours that nobody needs any more. It may have ended by
// itself.
func (sb *sandbox) endProcess(pid int) {
	ctx, cancel := context.WithTimeout(sb.gone, stopTimeout)
	defer cancel()
	_ = envd.New(sb.endpoint(envd.Port, sb.p.streams), kernelUser).SendSignal(ctx, pid, envd.SignalKill)
}

// Died implements kernel.Kernel.
func (r *cellRun) Died(ctx context.Context, _ error) (kernel.Death, bool) {
	if !r.end.told() {
		return kernel.Death{}, false
	}
	killed := r.c.sb.memoryKills(ctx)
	r.end.mu.Lock()
	defer r.end.mu.Unlock()
	return kernel.Death{Exit: r.end.exit, Memory: killed || r.end.memory}, true
}
