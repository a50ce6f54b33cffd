package provider

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// streamAfter is how long code runs before somebody looks for its output: most code has
// ended by then.
const streamAfter = 200 * time.Millisecond

// cellRun is a kernel.Kernel: one of the service, for one execution in it. The service tells
// what a cell has printed when the cell has ended, so that all output goes to a place in the
// sandbox (package place), where it is seen before.
type cellRun struct {
	p     *Provider
	box   place.Box
	saved contexts.Saved
	c     *codeContext
	req   sdk.ExecuteRequest
	// name is that of its place in the sandbox.
	name string
	// renewed is closed when somebody else ends the kernel.
	renewed <-chan struct{}

	stdout, stderr int64 // what has been passed on
}

var _ kernel.Kernel = (*cellRun)(nil)

// executeInContext runs code in a kernel that keeps its state.
func (p *Provider) executeInContext(ctx context.Context, box place.Box, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	var fields map[string]json.RawMessage
	if req.Arguments != nil && (json.Unmarshal(req.Arguments, &fields) != nil || fields == nil) {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "must be a JSON object")
	}
	c, err := p.Find(ctx, box.ID, req.ContextID, box)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	release, err := p.Take(ctx, box, c, req.Language)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer release()
	running, over := p.Begin(req)
	defer over()
	run := kernel.Run{
		Kernel: &cellRun{p: p, box: box, c: c, req: req}, Request: req, Out: out, Language: c.Language,
		Execution: running, Files: p.finder(box), Limit: p.limit(req), Cut: cutShorter, Grace: sdk.InterruptGrace,
	}
	return run.Do(ctx)
}

// Ready implements kernel.Kernel: it leads the output of the kernel to where it can be seen.
// A kernel that is gone is replaced.
func (r *cellRun) Ready(ctx context.Context) error {
	for first := true; ; first = false {
		if r.c.Gone().Err() != nil {
			return contexts.ErrNoContext()
		}
		r.renewed, r.saved, r.name = r.c.Kernel().Done(), r.c.Saved(), remote.NewName()
		code := cell.Begin(r.c.Language, cell.Start{ID: r.name, Env: r.box.Environment(r.saved.Env, r.req.Env), Artifacts: r.box.Absolute("artifacts")})
		result, err := r.p.data.ExecuteCode(ctx, r.box.ID, r.saved.Kernel, code, maxTimeout)
		item, failed := failure(result)
		if err == nil && !failed {
			return nil
		}
		if ctx.Err() != nil || !first || failed || !isMissing(err) {
			if failed {
				err = sdk.Errorf(sdk.CodeUnavailable, "the kernel cannot be used: %.300s", item.Trace())
			}
			return r.p.explain(ctx, err, sdk.CodeUnavailable, "use the kernel")
		}
		if err := r.c.Restart(ctx); err != nil {
			return err
		}
	}
}

// Before implements kernel.Kernel.
func (r *cellRun) Before() string { return "" }

// After implements kernel.Kernel.
func (r *cellRun) After() string { return "" }

// Call implements kernel.Kernel.
func (r *cellRun) Call() string {
	return cell.Call(r.c.Language, r.req.Arguments, r.req.OutputLimit)
}

// Cell implements kernel.Kernel.
func (r *cellRun) Cell(ctx context.Context, code string, event func(kernel.Event) error) (ended bool, err error) {
	type reply struct {
		result agentrun.CodeResult
		err    error
	}
	calling, abandon := context.WithCancel(ctx)
	defer abandon()
	replies := make(chan reply, 1)
	go func() {
		result, err := r.p.data.ExecuteCode(calling, r.box.ID, r.saved.Kernel, code, maxTimeout)
		replies <- reply{result, err}
	}()
	streaming, silence := context.WithCancel(ctx)
	defer silence()
	streamed := make(chan error, 1)
	go func() { streamed <- r.stream(streaming, event) }()

	select {
	case got := <-replies:
		silence()
		heard := <-streamed
		if got.err != nil {
			return false, got.err
		}
		return true, errors.Join(heard, take(got.result, event))
	case <-r.renewed:
		abandon()
		silence()
		<-replies
		return false, errors.Join(contexts.ErrNoContext(), <-streamed)
	}
}

// stream passes on output until ctx ends; a failure of the sandbox is left to Drain.
func (r *cellRun) stream(ctx context.Context, event func(kernel.Event) error) error {
	for ended := remote.Pause(ctx, streamAfter); ended == nil; {
		progress, unseen := place.Ask(ctx, service{r.p}, func(ctx context.Context) (place.Progress, error) {
			return place.Watch(ctx, r.box, r.name, r.stdout, r.stderr)
		})
		if unseen != nil {
			return nil //nolint:nilerr // what could not be seen is left to Drain
		}
		if err := r.pass(progress, event); err != nil {
			return err
		}
	}
	return nil
}

// pass passes on output.
func (r *cellRun) pass(progress place.Progress, event func(kernel.Event) error) error {
	r.stdout += int64(len(progress.Stdout))
	r.stderr += int64(len(progress.Stderr))
	return errors.Join(event(kernel.Event{Stdout: progress.Stdout}), event(kernel.Event{Stderr: progress.Stderr}))
}

// Drain implements kernel.Kernel.
func (r *cellRun) Drain(ctx context.Context, event func(kernel.Event) error) (json.RawMessage, error) {
	for {
		progress, err := r.look(ctx)
		if err != nil {
			return nil, r.p.explain(ctx, err, sdk.CodeUnavailable, "read the output")
		}
		if len(progress.Stdout)+len(progress.Stderr) == 0 {
			if json.Valid([]byte(progress.Result)) {
				return json.RawMessage(progress.Result), nil
			}
			return nil, nil
		}
		if err := r.pass(progress, event); err != nil {
			return nil, err
		}
	}
}

func (r *cellRun) look(ctx context.Context) (place.Progress, error) {
	return place.Ask(ctx, service{r.p}, func(ctx context.Context) (place.Progress, error) {
		return place.Look(ctx, r.box, r.name, r.stdout, r.stderr)
	})
}

// Interrupt implements kernel.Kernel. A kernel that belongs to another user cannot be
// interrupted.
func (r *cellRun) Interrupt(ctx context.Context) bool {
	return place.Poke(ctx, r.box, r.name, "SIGINT") == nil
}

// Watch implements kernel.Kernel: the service tells of the end by itself.
func (r *cellRun) Watch(<-chan struct{}, func()) {}

// Died implements kernel.Kernel.
func (r *cellRun) Died(ctx context.Context, err error) (kernel.Death, bool) {
	if r.Class(err) == kernel.TimedOut || !errors.Is(place.Poke(ctx, r.box, r.name, ""), place.ErrEnded) {
		return kernel.Death{}, false
	}
	progress, err := r.look(ctx)
	return kernel.Death{Exit: 128 + 9, Memory: err == nil && progress.Kills > r.saved.Kills}, true
}

// Settled implements kernel.Kernel.
func (r *cellRun) Settled(context.Context, kernel.Error, *sdk.ExecuteResult) error { return nil }

// Restart implements kernel.Kernel.
func (r *cellRun) Restart(ctx context.Context) error {
	return r.c.Restart(ctx)
}

// Gone implements kernel.Kernel.
func (r *cellRun) Gone() <-chan struct{} { return r.renewed }

// Lost implements kernel.Kernel.
func (r *cellRun) Lost() error {
	if r.c.Gone().Err() != nil {
		return contexts.ErrNoContext()
	}
	return nil
}

// Class implements kernel.Kernel.
func (r *cellRun) Class(err error) kernel.Class {
	f, answered := errors.AsType[*agentrun.Failure](err)
	switch {
	case answered && (f.Status == http.StatusGatewayTimeout || f.Status == http.StatusRequestTimeout):
		return kernel.TimedOut
	case denied(err):
		return kernel.Refused
	default:
		return kernel.Open
	}
}

// Explain implements kernel.Kernel.
func (r *cellRun) Explain(ctx context.Context, err error) error {
	return r.p.explain(ctx, err, sdk.CodeUnavailable, "run code")
}

// take passes on what a cell has come to, and what it shows. Output that did not go to the
// place comes this way.
func take(result agentrun.CodeResult, event func(kernel.Event) error) error {
	for _, item := range result.Results {
		var ev kernel.Event
		switch item.Type {
		case "stdout":
			ev.Stdout = []byte(item.Text)
		case "stderr":
			ev.Stderr = []byte(item.Text)
		case "result":
			ev.Value = &kernel.Value{Main: true, Forms: forms(item)}
		}
		if err := event(ev); err != nil {
			return err
		}
	}
	if failed, ok := failure(result); ok {
		name, value := failed.Kind()
		return event(kernel.Event{Error: &kernel.Error{Name: name, Value: value, Traceback: failed.Trace()}})
	}
	return nil
}

// forms are those of a value, by MIME type.
func forms(item agentrun.Item) map[string][]byte {
	if len(item.Data) == 0 {
		return map[string][]byte{"text/plain": []byte(item.Text)}
	}
	all := map[string][]byte{}
	for mime, data := range item.Data {
		all[mime] = data
		var text string
		if json.Unmarshal(data, &text) == nil {
			all[mime] = decoded(mime, text)
		}
	}
	return all
}

// decoded is the data of a form that came as a text.
func decoded(mime, text string) []byte {
	if strings.HasPrefix(mime, "text/") || strings.HasPrefix(mime, "image/svg") || mime == "application/json" || mime == "application/javascript" {
		return []byte(text)
	}
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return []byte(text)
	}
	return data
}
