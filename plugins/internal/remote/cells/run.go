package cells

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// run is a kernel.Kernel: the interpreter of a context, for one execution in it.
type run struct {
	c   *Context
	req sdk.ExecuteRequest
	// renewed is closed when somebody else ends the interpreter.
	renewed <-chan struct{}
	saved   contexts.Saved
	// main is what main returned.
	main json.RawMessage
}

var _ kernel.Kernel = (*run)(nil)

// request is what kernel.py and kernel.js read.
type request struct {
	Code string `json:"code"`
	// Arguments are JSON; with them main is called, and there is no code.
	Arguments *string           `json:"arguments"`
	Limit     int64             `json:"limit"`
	Env       map[string]string `json:"env"`
	Artifacts string            `json:"artifacts"`
}

// outcome is what they tell.
type outcome struct {
	Values []struct {
		Main  bool              `json:"main"`
		Forms map[string][]byte `json:"forms"`
	} `json:"values"`
	Error *struct{ Name, Value, Traceback string } `json:"error"`
	Main  string                                   `json:"main"`
}

// Ready implements kernel.Kernel. An interpreter that has ended is replaced.
func (r *run) Ready(ctx context.Context) error {
	if r.c.Gone().Err() != nil {
		return contexts.ErrNoContext()
	}
	state, err := r.ask(ctx, func(ctx context.Context) (place.State, error) { return place.Inspect(ctx, r.c.box, r.c.Saved().Kernel) })
	if errors.Is(err, place.ErrUnknown) || err == nil && state.Done != nil {
		err = r.c.Restart(ctx)
	}
	r.renewed, r.saved = r.c.Kernel().Done(), r.c.Saved()
	return err
}

func (r *run) ask(ctx context.Context, call func(context.Context) (place.State, error)) (place.State, error) {
	return place.Ask(ctx, r.c.all.service, call)
}

// Before implements kernel.Kernel.
func (r *run) Before() string { return "" }

// After implements kernel.Kernel.
func (r *run) After() string { return "" }

// call stands for the cell that calls main, which no code can be.
const call = "\x00call"

// Call implements kernel.Kernel.
func (r *run) Call() string { return call }

// Cell implements kernel.Kernel.
func (r *run) Cell(ctx context.Context, code string, event func(kernel.Event) error) (ended bool, err error) {
	ask := request{Code: code, Limit: r.req.OutputLimit, Env: r.req.Env, Artifacts: r.c.box.Absolute("artifacts")}
	if ask.Env == nil {
		ask.Env = map[string]string{}
	}
	if code == call {
		arguments := string(r.req.Arguments)
		ask.Code, ask.Arguments = "", &arguments
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return false, err
	}
	asking, abandon := context.WithCancel(ctx)
	defer abandon()
	stop := context.AfterFunc(r.c.Kernel(), abandon)
	defer stop()
	name := remote.NewName()
	for stdout, stderr := int64(0), int64(0); ; {
		got, err := place.Ask(asking, r.c.all.service, func(ctx context.Context) (place.Progress, error) {
			return place.Cell(ctx, r.c.box, r.saved.Kernel, name, string(text), stdout, stderr)
		})
		if err != nil {
			if asking.Err() != nil && ctx.Err() == nil {
				err = contexts.ErrNoContext()
			}
			return false, err
		}
		stdout, stderr = stdout+int64(len(got.Stdout)), stderr+int64(len(got.Stderr))
		if err := errors.Join(event(kernel.Event{Stdout: got.Stdout}), event(kernel.Event{Stderr: got.Stderr})); err != nil {
			return false, err
		}
		if got.Done != nil {
			return true, r.settle(got.Result, event)
		}
	}
}

// settle passes on what a cell has come to.
func (r *run) settle(result string, event func(kernel.Event) error) error {
	var o outcome
	if err := json.Unmarshal([]byte(result), &o); err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "the interpreter told nonsense of what became of the code: %w", err)
	}
	for _, v := range o.Values {
		if err := event(kernel.Event{Value: &kernel.Value{Main: v.Main, Forms: v.Forms}}); err != nil {
			return err
		}
	}
	if json.Valid([]byte(o.Main)) {
		r.main = json.RawMessage(o.Main)
	}
	if o.Error != nil {
		failed := kernel.Error(*o.Error)
		return event(kernel.Event{Error: &failed})
	}
	return nil
}

// Drain implements kernel.Kernel: a cell has passed on all.
func (r *run) Drain(context.Context, func(kernel.Event) error) (json.RawMessage, error) {
	return r.main, nil
}

// Interrupt implements kernel.Kernel.
func (r *run) Interrupt(ctx context.Context) bool {
	return place.Signal(ctx, r.c.box, r.saved.Kernel, "SIGINT", remote.NewName()) == nil
}

// Watch implements kernel.Kernel: a cell that has lost its interpreter ends by itself.
func (r *run) Watch(<-chan struct{}, func()) {}

// Died implements kernel.Kernel.
func (r *run) Died(ctx context.Context, err error) (kernel.Death, bool) {
	if !errors.Is(err, place.ErrEnded) {
		return kernel.Death{}, false
	}
	death := kernel.Death{Exit: 128 + 9}
	state, err := r.ask(ctx, func(ctx context.Context) (place.State, error) { return place.Inspect(ctx, r.c.box, r.saved.Kernel) })
	if err == nil && state.Done != nil {
		death = kernel.Death{Exit: state.Done.Exit, Memory: state.Done.Memory && state.Done.Exit != 0}
	}
	return death, true
}

// Settled implements kernel.Kernel.
func (r *run) Settled(context.Context, kernel.Error, *sdk.ExecuteResult) error { return nil }

// Restart implements kernel.Kernel.
func (r *run) Restart(ctx context.Context) error { return r.c.Restart(ctx) }

// Gone implements kernel.Kernel.
func (r *run) Gone() <-chan struct{} { return r.renewed }

// Lost implements kernel.Kernel.
func (r *run) Lost() error {
	if r.c.Gone().Err() != nil {
		return contexts.ErrNoContext()
	}
	return nil
}

// Class implements kernel.Kernel.
func (r *run) Class(err error) kernel.Class {
	if r.c.all.service.Refused(err) || errors.Is(err, place.ErrUnknown) {
		return kernel.Refused
	}
	return kernel.Open
}

// Explain implements kernel.Kernel.
func (r *run) Explain(ctx context.Context, err error) error {
	return r.c.all.service.Explain(ctx, err, "run code")
}
