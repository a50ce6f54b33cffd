package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var errNoInstance = sdk.Errorf(sdk.CodeNotFound, "no such instance")

// lookup finds a sandbox. Whether it lives shows when it is used.
func (p *Provider) lookup(ctx context.Context, id string) (place.Box, error) {
	if !p.owns(id) {
		return place.Box{}, errNoInstance
	}
	one, _ := p.records.Get(id)
	if one.Workspace == "" { // another process has made it
		var err error
		if one, err = p.learn(ctx, id); err != nil {
			return place.Box{}, p.explain(ctx, err, sdk.CodeUnavailable, "set up the sandbox")
		}
	}
	return place.Box{Runner: runner{p.data, one.ID}, ID: one.ID, Workspace: one.Workspace, Env: one.Env}, nil
}

// learn sets up a sandbox unless somebody has done it meanwhile, who may know more than is
// found now.
func (p *Provider) learn(ctx context.Context, id string) (record, error) {
	release, err := p.settingUp.Take(ctx, id)
	if err != nil {
		return record{}, err
	}
	defer release()
	one, ok := p.records.Get(id)
	if !ok {
		one = record{ID: id}
	}
	if one.Workspace != "" {
		return one, nil
	}
	return p.setup(ctx, one)
}

// runner is a place.Runner.
type runner struct {
	data dataPlane
	id   string
}

// Run runs a command that has little to say.
func (r runner) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	got, err := r.data.RunCommand(ctx, r.id, command, "/", timeout)
	if err != nil {
		return "", err
	}
	if got.Result.ExitCode != 0 {
		return "", &agentrun.Failure{Status: 502, Code: got.Status, Message: fmt.Sprintf("a command ended with exit code %d: %.300s", got.Result.ExitCode, got.Result.Stderr)}
	}
	return got.Result.Stdout, nil
}

// Upload writes a file.
func (r runner) Upload(ctx context.Context, path string, content []byte) error {
	return r.data.Upload(ctx, r.id, path, content)
}

// service is a place.Service, and a contexts.Service.
type service struct{ p *Provider }

// Box implements both.
func (s service) Box(ctx context.Context, instanceID string) (place.Box, error) {
	return s.p.lookup(ctx, instanceID)
}

// Worth implements place.Service.
func (service) Worth(err error) (time.Duration, bool) { return worth(err) }

// Refused implements place.Service.
func (service) Refused(err error) bool { return denied(err) }

// Explain implements place.Service.
func (s service) Explain(ctx context.Context, err error, doing string) error {
	return s.p.explain(ctx, err, sdk.CodeUnavailable, doing)
}

// note is what is kept in a sandbox for brokers that have no record of it. Code there can
// change it, so that it must not concern anything but the sandbox.
type note struct {
	Env       map[string]string `json:"env"`
	KeepUntil time.Time         `json:"keep_until,omitzero"`
}

// record is what the service cannot keep for us: it takes no labels. One file for each
// sandbox lies in the state directory, made before the sandbox is.
type record struct {
	ID        string            `json:"id"`
	Template  string            `json:"template"`
	Labels    map[string]string `json:"labels"`
	Env       map[string]string `json:"env"`
	CreatedAt time.Time         `json:"created_at"`
	ExpiresAt time.Time         `json:"expires_at"`
	// KeepUntil is when nobody keeps the service from ending it any more; zero for
	// never.
	KeepUntil time.Time `json:"keep_until,omitzero"`
	// Paused says that the sandbox is frozen, or about to be.
	Paused bool `json:"paused,omitempty"`
	// Workspace is where code works; empty until the sandbox has been set up.
	Workspace string `json:"workspace"`
	// Idle is how long the service lets it be that nobody asks for anything, where that may not
	// be what the settings say by now.
	Idle time.Duration `json:"idle,omitempty"`
	// Adopted says that another broker has made the sandbox.
	Adopted bool `json:"adopted,omitempty"`
	// Contexts are kernels in it.
	Contexts []contexts.Saved `json:"contexts,omitempty"`
}

// made says that the sandbox was there for certain, and not only intended.
func (one record) made() bool { return one.Workspace != "" || one.Adopted }

// cutShorter says why code had less time than it was to have.
const cutShorter = "the time limit of this provider is shorter than the one asked for"

// Execute implements sdk.Provider. The service gives output only when a command has
// ended, so that the code runs beside the commands that watch it: see package place.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	box, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
	}
	if req.ContextID != "" {
		return p.executeInContext(ctx, box, req, out)
	}
	running, end := p.Begin(req)
	defer end()
	run := place.Execution{
		Service: service{p}, Logger: p.log, Box: box, Request: req, Running: running, Files: p.finder(box), Limit: p.limit(req), Cut: cutShorter,
	}
	return run.Do(ctx, out)
}

// limit is what the provider gives an execution.
func (p *Provider) limit(req sdk.ExecuteRequest) time.Duration {
	return min(req.Timeout, time.Duration(p.settings.Timeout)*time.Second, maxTimeout)
}

// finder finds what an execution has made.
func (p *Provider) finder(box place.Box) artifacts.Finder {
	return artifacts.Finder{Store: p.store(), Instance: box.ID, Most: maxListed}
}

const (
	// maxListed bounds what a list looks at.
	maxListed = 10_000
	// readAtOnce is how much of a file comes with its description, in bytes.
	readAtOnce = 256 << 10
)

// store is a guestfiles.Store.
type store struct {
	place.Store
	p *Provider
}

// Open implements guestfiles.Store. A download is from the beginning of a file on, for the
// service knows no other.
func (s store) Open(ctx context.Context, instanceID, name string, offset, length int64) (io.ReadCloser, error) {
	box, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	content, err := again(ctx, func(context.Context) (io.ReadCloser, error) {
		return s.p.data.Download(ctx, instanceID, box.Real(name))
	})
	if err != nil {
		return nil, s.p.explain(ctx, err, sdk.CodeUnavailable, "read a file")
	}
	if _, err := io.CopyN(io.Discard, content, offset); err != nil {
		return nil, s.p.explain(ctx, errors.Join(err, content.Close()), sdk.CodeUnavailable, "read a file")
	}
	return &part{io.LimitReader(content, length), content}, nil
}

// part is a part of a download.
type part struct {
	io.Reader
	io.Closer
}

var _ sdk.Pauser = (*Provider)(nil)

// Pause implements sdk.Pauser. The service keeps a paused sandbox for 30 days.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	// Before it is, so that nobody keeps it from being.
	if err := p.records.Change(instanceID, func(one record) record { one.Paused = true; return one }); err != nil {
		return err
	}
	err := p.bring(ctx, instanceID, agentrun.StatusPaused, p.control.PauseSandbox)
	if err != nil {
		return errors.Join(err, p.goesOn(instanceID))
	}
	return nil
}

// goesOn takes down that a sandbox is not paused.
func (p *Provider) goesOn(id string) error {
	return p.records.Change(id, func(one record) record { one.Paused = false; return one })
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	if err := p.bring(ctx, instanceID, agentrun.StatusReady, p.control.ResumeSandbox); err != nil {
		return err
	}
	return p.goesOn(instanceID)
}

// bring changes the state of a sandbox, and waits until it has it.
func (p *Provider) bring(ctx context.Context, id, want string, change func(context.Context, string) error) error {
	if !p.owns(id) {
		return errNoInstance
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	asked := false
	for step := readyStep; ; step = min(2*step, maxStep) {
		s, err := again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) { return p.data.GetSandbox(ctx, id) })
		switch {
		case err != nil:
			return p.explain(ctx, err, sdk.CodeUnavailable, "look at the sandbox")
		case s.Status == want && want == agentrun.StatusReady && asked:
			return p.answers(ctx, id, step)
		case s.Status == want:
			return nil
		case s.Status == agentrun.StatusTerminated || agentrun.Failed(s.Status):
			return errNoInstance
		case !asked:
			_, err := again(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, change(ctx, id) })
			if err != nil && !exists(err) { // a conflict: it is on its way already
				return p.explain(ctx, err, sdk.CodeUnavailable, "pause or resume the sandbox")
			}
			asked = true
			continue
		}
		if err := remote.Pause(ctx, step); err != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "the sandbox is %s and not %s: %w", s.Status, want, err)
		}
	}
}

// answers waits until a sandbox runs code again.
func (p *Provider) answers(ctx context.Context, id string, step time.Duration) error {
	for {
		ready, err := p.data.Ready(ctx, id)
		if ready {
			return nil
		}
		if isMissing(err) {
			return errNoInstance
		}
		if ended := remote.Pause(ctx, step); ended != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "the sandbox does not answer: %w", ended)
		}
	}
}
