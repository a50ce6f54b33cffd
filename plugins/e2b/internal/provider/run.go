package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// envdGrace is how much later than the supervisor envd has its limit.
	envdGrace = 15 * time.Second
	// stopTimeout bounds all that is done to end a job.
	stopTimeout = 5 * time.Second
	// obedience is how long a supervisor may take to end its processes.
	obedience = 3 * time.Second
)

// sink takes the output of a job.
type sink struct{ stdout, stderr func([]byte) error }

// job is one that runs under a supervisor.
type job struct {
	sb     *sandbox
	run    *stream.Run
	output *frames.Filter
	sink   sink
	// started is called with the PID of the supervisor, once the program is there.
	started func(pid int)

	pid int
	// begun says that the program was asked for, and may run or have run.
	begun bool
	// done is what the supervisor has told of the end; nil while it has not.
	done   *supervise.Done
	asked  time.Time
	events chan event
	// read ends the goroutine that reads.
	read context.CancelFunc
	// paused says that a pause has cut the stream once, so that something of it may be
	// missing.
	paused bool
}

type event struct {
	process *envd.Process // the first, if all is well
	// again says that the process is listened to again, after a pause.
	again bool
	envd.Event
	err error
}

// supervise runs a job to its end. If ctx or the sandbox ends before, or the sink
// fails, all processes of the job are ended, and it returns when they are. What
// becomes of the job itself is in the report; it is nil if something has ended the supervisor.
func (sb *sandbox) supervise(ctx context.Context, what stream.Job, options envd.StartOptions, to sink, started func(pid int)) (*supervise.Done, error) {
	run, err := stream.NewRun(what)
	if err != nil {
		return nil, err
	}
	j := &job{sb: sb, run: run, sink: to, started: started, events: make(chan event)}
	j.output = run.Output(to.stdout, func(r stream.Report) {
		if r.Started && j.started != nil {
			j.started(j.pid)
		}
		if j.done = r.Done; r.Done != nil && r.Done.Error == "" {
			sb.noteKills(r.Done.Kills)
		}
	})
	program, file, upload := run.Program()
	if upload != nil {
		if err := sb.tell(ctx, func(c *envd.Client) error { return c.Upload(ctx, file, bytes.NewReader(upload)) }); err != nil {
			return nil, sdk.ExecutionError(sb.explain(ctx, err), false)
		}
	}
	if what.Timeout > 0 {
		options.Limit = what.Timeout + envdGrace
	}
	options.Tag = run.Tag
	reading, stop := context.WithCancel(sb.gone)
	j.read = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.readEvents(reading, program, options)
	}()
	defer func() { stop(); <-done }()

	j.begun, j.asked = true, time.Now()
	err = j.follow(ctx)
	if err == nil {
		err = j.output.Close()
	}
	return j.done, sdk.ExecutionError(err, j.begun)
}

// readEvents starts the program and passes on what it does.
func (j *job) readEvents(ctx context.Context, program stream.Program, options envd.StartOptions) {
	process, err := ask(ctx, j.sb, func(c *envd.Client) (*envd.Process, error) { return c.Start(ctx, programOf(program), options) })
	if err != nil {
		j.send(ctx, event{err: err})
		return
	}
	defer func() { process.Close() }()
	j.sb.listens(j)
	defer j.sb.leaves(j)
	if !j.send(ctx, event{process: process}) {
		return
	}
	for {
		ev, err := process.Next()
		if isLost(err) && ctx.Err() == nil && (j.sb.wasCut(j) || j.sb.standsStill(ctx)) {
			process.Close()
			var again *envd.Process
			if again, err = j.sb.listenAgain(ctx, process.PID); err == nil {
				process = again
				j.sb.listens(j)
				if !j.send(ctx, event{again: true}) {
					return
				}
				continue
			}
		}
		if !j.send(ctx, event{Event: ev, err: err}) || err != nil {
			return
		}
	}
}

func (j *job) send(ctx context.Context, ev event) bool {
	select {
	case j.events <- ev:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow deals with events until the job has ended.
func (j *job) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			j.kill()
			return context.Cause(ctx)
		case <-j.sb.gone.Done():
			return errNoInstance
		case ev := <-j.events:
			ended, err := j.take(ev)
			switch {
			case err == nil && !ended:
				continue
			case err == nil:
				return nil
			}
			if _, ours := errors.AsType[*sinkError](err); ours {
				j.kill()
				return errors.Unwrap(err)
			}
			return j.lost(ctx, err)
		}
	}
}

// sinkError is one of the sink's.
type sinkError struct{ error }

func (e *sinkError) Unwrap() error { return e.error }

// take deals with an event, and says whether it was the last.
func (j *job) take(ev event) (ended bool, err error) {
	switch {
	case ev.process != nil:
		j.pid = ev.process.PID
		return false, nil
	case ev.again:
		j.paused = true
		if err := j.output.Cut(); err != nil {
			return true, &sinkError{err}
		}
		return false, nil
	case errors.Is(ev.err, io.EOF):
		return true, nil
	case ev.err != nil:
		if e, ok := errors.AsType[*e2bhttp.Error](ev.err); ok && e.Code == "deadline_exceeded" && j.pid != 0 {
			j.sweep()
			j.done = j.ended(128+9, supervise.Timeout)
			return true, nil
		}
		return true, ev.err
	case ev.End != nil:
		if j.paused && ev.End.Exited && j.done == nil {
			// It has ended before anybody listened again. Its exit code is all that is known.
			j.done = j.ended(ev.End.ExitCode, "")
		}
		if j.done == nil {
			// Something has ended the supervisor. Whatever is left of the job is ours to end.
			j.sweep()
		}
		return false, nil
	}
	if err := j.output.Write(ev.Stdout); err != nil {
		return true, &sinkError{err}
	}
	if len(ev.Stderr) > 0 {
		if err := j.sink.stderr(ev.Stderr); err != nil {
			return true, &sinkError{err}
		}
	}
	return false, nil
}

// ended is what is known of a job whose supervisor has not told.
func (j *job) ended(exit int, reason string) *supervise.Done {
	return &supervise.Done{Exit: exit, Reason: reason, Seconds: time.Since(j.asked).Seconds()}
}

// programOf is a program of the kit as envd takes it.
func programOf(p stream.Program) envd.Program {
	return envd.Program{Cmd: p.Argv[0], Args: p.Argv[1:], Envs: p.Env, Cwd: "/"}
}

// lost ends what may still run behind a connection that is gone, and says what
// happened.
func (j *job) lost(ctx context.Context, err error) error {
	j.begun = j.pid != 0 || !refused(err)
	explained := j.sb.explain(ctx, err)
	if j.sb.isPaused() {
		j.killLater() // nobody listens to it any more
		return explained
	}
	if sdk.CodeOf(explained) != sdk.CodeNotFound && (isLost(err) || j.pid != 0) {
		ctx, cancel := context.WithTimeout(j.sb.gone, stopTimeout)
		defer cancel()
		if j.pid != 0 || j.find(ctx) {
			j.abandon(ctx)
		}
	}
	return explained
}

// abandon ends a job that nobody listens to any more: first the supervisor, then what
// it leaves.
func (j *job) abandon(ctx context.Context) {
	j.signal(ctx, envd.SignalKill)
	j.sweep()
}

// kill ends all processes of the job and waits until they are gone. What they still
// print is thrown away.
func (j *job) kill() {
	ctx, cancel := context.WithTimeout(j.sb.gone, stopTimeout)
	defer cancel()
	if j.sb.isPaused() {
		j.killLater()
		return
	}
	if j.pid == 0 && !j.awaitStart(ctx) {
		return
	}
	j.signal(ctx, envd.SignalTerm)
	obeys := time.NewTimer(obedience)
	defer obeys.Stop()
	for {
		select {
		case ev := <-j.events:
			if ev.err == nil {
				continue
			}
			if errors.Is(ev.err, io.EOF) {
				return
			}
			j.abandon(ctx)
			return
		case <-obeys.C:
			j.abandon(ctx)
			return
		case <-ctx.Done():
			return
		}
	}
}

// killLater ends the processes of the job when the sandbox goes on: while it is paused
// nothing can be done to them.
func (j *job) killLater() {
	j.sb.p.background.Go(func() {
		if j.sb.awaitRunning(j.sb.gone) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(j.sb.gone, stopTimeout)
		defer cancel()
		if j.pid != 0 || j.find(ctx) {
			j.abandon(ctx)
		}
	})
}

// awaitStart waits for the PID of a supervisor that may just have been started, and says
// whether there is one.
func (j *job) awaitStart(ctx context.Context) bool {
	select {
	case ev := <-j.events:
		if ev.process != nil {
			j.pid = ev.process.PID
			return true
		}
		if !isLost(ev.err) {
			return false
		}
	case <-ctx.Done():
		return false
	}
	return j.find(ctx)
}

// find looks for a supervisor that was started although no answer came.
func (j *job) find(ctx context.Context) bool {
	pids, err := ask(ctx, j.sb, func(c *envd.Client) ([]int, error) { return c.Tagged(ctx, j.run.Tag) })
	if err != nil || len(pids) == 0 {
		return false
	}
	j.pid = pids[0]
	return true
}

func (j *job) signal(ctx context.Context, signal envd.Signal) {
	err := j.sb.tell(ctx, func(c *envd.Client) error { return c.SendSignal(ctx, j.pid, signal) })
	if err != nil && ctx.Err() == nil {
		j.sb.p.logger.Debug("a process could not be signalled; it may have ended", "sandbox", j.sb.id, "error", j.sb.p.failure(err))
	}
}

// sweep kills what is left of a job without a supervisor.
func (j *job) sweep() {
	ctx, cancel := context.WithTimeout(j.sb.gone, stopTimeout)
	defer cancel()
	if _, _, err := j.sb.script(ctx, stream.Sweep(j.run.Tag)); err != nil && ctx.Err() == nil {
		j.sb.p.logger.Warn("processes that were to be ended may be left in a sandbox", "sandbox", j.sb.id, "error", err)
	}
}

// maxScriptOutput bounds what a script may print.
const maxScriptOutput = 16 << 20

// script runs a small program of ours and returns what it printed and its exit code.
func (sb *sandbox) script(ctx context.Context, program stream.Program) (stdout []byte, exit int, err error) {
	process, err := ask(ctx, sb, func(c *envd.Client) (*envd.Process, error) {
		return c.Start(ctx, programOf(program), envd.StartOptions{Limit: time.Minute})
	})
	if err != nil {
		return nil, 0, sb.explain(ctx, err)
	}
	defer process.Close()
	if stdout, exit, err = collect(process); err != nil {
		return nil, 0, sb.explain(ctx, err)
	}
	return stdout, exit, nil
}

// collect reads what a small program of ours prints, to its end.
func collect(process *envd.Process) (stdout []byte, exit int, err error) {
	var end *envd.End
	for {
		ev, err := process.Next()
		switch {
		case errors.Is(err, io.EOF) && end != nil:
			return stdout, end.ExitCode, nil
		case err != nil:
			return nil, 0, err
		case ev.End != nil:
			end = ev.End
		}
		if stdout = append(stdout, ev.Stdout...); len(stdout) > maxScriptOutput {
			return nil, 0, sdk.Errorf(sdk.CodeUnavailable, "the sandbox gave too long an answer")
		}
	}
}
