package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/api"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/bridge"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.Pauser = (*Provider)(nil)
	_ sdk.Ports  = (*Provider)(nil)
	_ sdk.Meter  = (*Provider)(nil)
)

// idForm is that of Daytona's IDs, which get into paths.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

var (
	errNoInstance = sdk.Errorf(sdk.CodeNotFound, "no such instance")
	errPaused     = sdk.Errorf(sdk.CodeConflict, "the instance is paused")
)

// record is what Daytona does not keep for us.
type record struct {
	// Paused says that the broker has paused it, or is about to: nothing wakes it but Resume.
	Paused   bool             `json:"paused,omitempty"`
	Contexts []contexts.Saved `json:"contexts,omitempty"`
}

// sandbox is one that this process knows.
type sandbox struct {
	api.Sandbox // as it was when it became known; its state may be another
	p           *Provider
	template    string
	labels      map[string]string
	deadline    time.Time
	bridge      *bridge.Bridge
	// gone ends with the sandbox, or with this process.
	gone context.Context //nolint:containedctx // its lifetime
	end  context.CancelFunc

	mu        sync.Mutex
	workspace string
	used      time.Time // when its clock began anew, at the latest
}

// adopt makes a sandbox known.
func (p *Provider) adopt(s api.Sandbox) *sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sb := p.sandboxes[s.ID]; sb != nil {
		return sb
	}
	sb := p.newSandbox(s)
	p.sandboxes[s.ID] = sb
	return sb
}

// newSandbox is one as the API describes it.
func (p *Provider) newSandbox(s api.Sandbox) *sandbox {
	sb := &sandbox{Sandbox: s, p: p, template: s.Labels[labelTemplate], labels: map[string]string{}}
	for name, value := range s.Labels {
		if own, ok := strings.CutPrefix(name, labelOwn); ok {
			sb.labels[own] = value
		}
	}
	if at, err := strconv.ParseInt(s.Labels[labelDeadline], 10, 64); err == nil {
		sb.deadline = time.Unix(at, 0).UTC()
	}
	sb.gone, sb.end = context.WithCancel(p.life)
	sb.bridge = &bridge.Bridge{
		Service: service{p}, Client: p.api.Toolbox,
		Box: func(ctx context.Context) (place.Box, error) { return service{p}.Box(ctx, s.ID) },
		Address: func(ctx context.Context, port uint16) (bridge.Address, error) {
			at, err := again(ctx, p, func(ctx context.Context) (api.Preview, error) { return p.api.Preview(ctx, s.ID, port) })
			return bridge.Address{URL: at.URL, Header: http.Header{
				"X-Daytona-Preview-Token": {at.Token}, "X-Daytona-Skip-Preview-Warning": {"true"},
			}}, p.explain(ctx, err, sdk.CodeUnavailable, "find the address of a port")
		},
	}
	return sb
}

// instance is the sandbox as the broker knows it.
func (sb *sandbox) instance() sdk.Instance {
	metadata := map[string]string{"sandbox_id": sb.ID, "target": sb.Target}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.workspace != "" {
		metadata["workspace"] = sb.workspace
	}
	return sdk.Instance{ID: sb.ID, Template: sb.template, Labels: sb.labels, Metadata: metadata, CreatedAt: sb.CreatedAt, ExpiresAt: sb.deadline}
}

// forget forgets a sandbox that is gone.
func (p *Provider) forget(id string) error {
	p.mu.Lock()
	sb := p.sandboxes[id]
	delete(p.sandboxes, id)
	p.mu.Unlock()
	if sb != nil {
		sb.end()
	}
	p.Forget(id)
	return p.records.Remove(id)
}

// lookup finds a sandbox that is not paused.
func (p *Provider) lookup(ctx context.Context, id string) (*sandbox, error) {
	if !idForm.MatchString(id) {
		return nil, errNoInstance
	}
	if one, _ := p.records.Get(id); one.Paused {
		return nil, errPaused
	}
	p.mu.Lock()
	sb := p.sandboxes[id]
	p.mu.Unlock()
	if sb != nil {
		return sb, nil
	}
	s, err := p.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.adopt(s), nil
}

// inspect asks the API about a sandbox of ours. If there is none, it is forgotten.
func (p *Provider) inspect(ctx context.Context, id string) (api.Sandbox, error) {
	s, err := again(ctx, p, func(ctx context.Context) (api.Sandbox, error) { return p.api.Get(ctx, id) })
	switch {
	case isMissing(err), err == nil && (s.ID != id || s.Labels[labelOwner] != p.owner || s.State == api.Destroying || s.State == api.Destroyed):
		return s, errors.Join(errNoInstance, p.forget(id))
	case err != nil:
		return s, p.explain(ctx, err, sdk.CodeUnavailable, "look at the sandbox")
	}
	return s, nil
}

// idle is how long ago it was kept from being stopped.
func (sb *sandbox) idle(now time.Time) time.Duration {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return now.Sub(sb.used)
}

func (sb *sandbox) touch() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.used = time.Now()
}

// keepAlive keeps it from being stopped.
func (sb *sandbox) keepAlive(ctx context.Context) {
	err := sb.p.api.KeepAlive(ctx, sb.ID)
	switch {
	case err == nil:
		sb.touch()
	case ctx.Err() != nil:
	case isMissing(err):
		_, _ = sb.p.inspect(ctx, sb.ID) // which forgets it if a second look says the same
	default:
		sb.p.logger.Warn("a sandbox could not be kept alive; it is tried again", "sandbox", sb.ID, "error", sb.p.secrets.Error(err))
	}
}

// use makes a call of the toolbox. A sandbox that Daytona has stopped meanwhile is woken,
// and the call made again: it has not got there.
func use[T any](ctx context.Context, sb *sandbox, call func(context.Context) (T, error)) (T, error) {
	value, err := call(ctx)
	if err == nil {
		sb.touch()
		return value, nil
	}
	e, answered := errors.AsType[*api.Error](err)
	switch {
	case !answered, e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooManyRequests:
		return value, err
	case e.Status == http.StatusNotFound && e.Message == "" && !e.Stray: // a file that is not there
		return value, err
	}
	woken, looked := sb.wake(ctx)
	switch {
	case looked != nil && e.Status < http.StatusInternalServerError:
		return value, &unheard{looked}
	case looked != nil:
		return value, looked
	case woken:
		return call(ctx)
	case e.Status == http.StatusBadRequest, e.Status == http.StatusConflict:
		// It runs by what the API says, and not yet by what stands before the toolbox.
		return value, &api.Error{Status: http.StatusServiceUnavailable, Code: e.Code, Message: e.Message}
	}
	return value, err
}

// unheard says why a call did not get to the toolbox.
type unheard struct{ error }

func (e *unheard) Unwrap() error { return e.error }

// wake starts a sandbox that is stopped, unless the broker has it paused, and says whether it
// was. One does so at a time: to whoever comes later it runs, with programs that have begun
// since.
func (sb *sandbox) wake(ctx context.Context) (woken bool, err error) {
	release, err := sb.p.changing.Take(ctx, sb.ID)
	if err != nil {
		return false, err
	}
	defer release()
	s, err := sb.p.inspect(ctx, sb.ID)
	if err != nil {
		return false, err
	}
	if one, _ := sb.p.records.Get(sb.ID); one.Paused {
		return false, errPaused
	}
	switch s.State {
	case api.Started:
		return false, nil
	case api.Failed:
		if !s.Recoverable {
			return false, sdk.Errorf(sdk.CodeUnavailable, "Daytona's sandbox is in an error: %.300s", s.ErrorReason)
		}
	}
	return true, sb.bring(ctx, api.Started)
}

// bring changes the state of a sandbox, and waits until it has it. The caller has the lock
// of p.changing.
func (sb *sandbox) bring(ctx context.Context, want api.State) error {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	stopped := false // it was: no process has survived that
	var last api.Action
	for step := pollFirst; ; step = min(step+step/4, pollMost) {
		s, err := sb.p.inspect(ctx, sb.ID)
		if err != nil {
			return err
		}
		stopped = stopped || s.State == api.Stopped || s.State == api.Archived || s.State == api.Failed
		if s.State == want && want == api.Started && stopped {
			return sb.recovered(ctx)
		}
		action := towards(s, want)
		switch {
		case s.State == want:
			return nil
		case action == "" && (s.State == api.Failed || s.State == api.BuildFailed):
			return sdk.Errorf(sdk.CodeUnavailable, "Daytona's sandbox is in an error: %.300s", s.ErrorReason)
		case action != "" && action != last:
			_, err := again(ctx, sb.p, func(ctx context.Context) (struct{}, error) { return struct{}{}, sb.p.api.Do(ctx, sb.ID, action) })
			if err != nil && statusOf(err) != http.StatusConflict { // which means that it is between two states
				return sb.explainChange(ctx, err, action)
			}
			if last = action; err != nil {
				last = ""
			}
		}
		if err := remote.Pause(ctx, step); err != nil {
			return sdk.Errorf(sdk.CodeUnavailable, "the sandbox is %s and not %s: %w", s.State, want, err)
		}
	}
}

// towards is what brings a sandbox nearer to a state; nothing while it changes by itself.
func towards(s api.Sandbox, want api.State) api.Action {
	switch {
	case s.State == api.Failed && s.Recoverable:
		return api.Recover
	case want == api.Started && (s.State == api.Stopped || s.State == api.Archived || s.State == api.Paused):
		return api.Start
	case want == api.Paused && s.State == api.Started:
		return api.Pause
	case (want == api.Stopped || want == api.Archived) && s.State == api.Started:
		return api.Stop
	case want == api.Archived && s.State == api.Stopped:
		return api.Archive
	}
	return ""
}

// explainChange says what is wrong with a change of state.
func (sb *sandbox) explainChange(ctx context.Context, err error, action api.Action) error {
	if status := statusOf(err); action == api.Pause && (status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusNotImplemented) {
		e := sdk.NotSupported("daytona", sdk.CapabilityPause)
		return sb.p.secrets.Error(sdk.Errorf(e.Code, "sandboxes of this class keep no memory; set pause_by to stop or archive: %w", err))
	}
	return sb.p.explain(ctx, err, sdk.CodeUnavailable, string(action)+" the sandbox")
}

// recovered tells those who ask for what ran before the sandbox was stopped that it has
// ended.
func (sb *sandbox) recovered(ctx context.Context) error {
	_, err := place.Ask(ctx, service{sb.p}, func(ctx context.Context) (struct{}, error) { return struct{}{}, place.Recover(ctx, waking{sb}) })
	return sb.p.explain(ctx, err, sdk.CodeUnavailable, "use the sandbox again")
}

// Pause implements sdk.Pauser.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	sb, err := p.lookup(ctx, instanceID)
	if errors.Is(err, errPaused) {
		return nil
	}
	if err != nil {
		return err
	}
	release, err := p.changing.Take(ctx, sb.ID)
	if err != nil {
		return err
	}
	defer release()
	// Before it is, so that nobody wakes it.
	if err := p.change(sb.ID, func(one *record) { one.Paused = true }); err != nil {
		return err
	}
	want := map[string]api.State{byPause: api.Paused, byStop: api.Stopped, byArchive: api.Archived}[p.settings.PauseBy]
	if err := sb.bring(ctx, want); err != nil {
		return errors.Join(err, p.change(sb.ID, func(one *record) { one.Paused = false }))
	}
	return nil
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	if !idForm.MatchString(instanceID) {
		return errNoInstance
	}
	release, err := p.changing.Take(ctx, instanceID)
	if err != nil {
		return err
	}
	defer release()
	s, err := p.inspect(ctx, instanceID)
	if err != nil {
		return err
	}
	sb := p.adopt(s)
	if err := sb.bring(ctx, api.Started); err != nil {
		return err
	}
	sb.touch()
	return p.change(sb.ID, func(one *record) { one.Paused = false })
}

// change changes the record of a sandbox.
func (p *Provider) change(id string, change func(*record)) error {
	one, _ := p.records.Get(id)
	change(&one)
	return p.records.Put(id, one)
}

// DialPort implements sdk.Ports. Previews of Daytona are HTTP: package bridge makes
// connections of them.
func (p *Provider) DialPort(ctx context.Context, instanceID string, port uint16) (net.Conn, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	return sb.bridge.Dial(ctx, sb.gone, port)
}

// measurement prints what the control group of a sandbox has used, of version 2 or 1: memory,
// CPU time in nanoseconds and processes; and the bytes of the disk in kibibytes, used and all.
const measurement = `cd /sys/fs/cgroup 2>/dev/null
echo $(cat memory.current memory/memory.usage_in_bytes 2>/dev/null || :) 0 | cut -d' ' -f1
echo $(sed -n 's/^usage_usec \(.*\)/\1000/p' cpu.stat 2>/dev/null) $(cat cpuacct/cpuacct.usage 2>/dev/null) 0 | cut -d' ' -f1
echo $(cat pids.current pids/pids.current 2>/dev/null) 0 | cut -d' ' -f1
df -kP / | awk 'NR == 2 { print $3; print $2 }'`

// InstanceMetrics implements sdk.Meter.
func (p *Provider) InstanceMetrics(ctx context.Context, instanceID string) (sdk.InstanceMetrics, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return sdk.InstanceMetrics{}, err
	}
	text, err := place.Ask(ctx, service{p}, func(ctx context.Context) (string, error) { return runner{sb}.Run(ctx, measurement, 10*time.Second) })
	if err != nil {
		return sdk.InstanceMetrics{}, p.explain(ctx, err, sdk.CodeUnavailable, "measure the sandbox")
	}
	var numbers [5]int64
	for i, word := range strings.Fields(text) {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil && i < len(numbers) {
			numbers[i] = n
		}
	}
	const gibibyte = 1 << 30
	return sdk.InstanceMetrics{
		MeasuredAt: time.Now(), Memory: numbers[0], MemoryLimit: int64(sb.Memory * gibibyte), CPUTime: time.Duration(numbers[1]), CPULimit: sb.CPU,
		Processes: numbers[2], Disk: numbers[3] << 10, DiskLimit: numbers[4] << 10,
	}, nil
}

// Execute implements sdk.Provider.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	box, err := service{p}.Box(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, sdk.ExecutionError(err, false)
	}
	if req.ContextID != "" {
		return p.Contexts.Execute(ctx, box, req, req.Timeout, &p.Executions, out)
	}
	running, end := p.Begin(req)
	defer end()
	run := place.Execution{Service: service{p}, Logger: p.logger, Box: box, Request: req, Running: running, Files: service{p}.Files(box), Limit: req.Timeout}
	return run.Do(ctx, out)
}

// runner is a place.Runner.
type runner struct{ *sandbox }

// Run implements place.Runner.
func (r runner) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	return use(ctx, r.sandbox, func(ctx context.Context) (string, error) { return waking(r).Run(ctx, command, timeout) })
}

// Upload implements place.Runner.
func (r runner) Upload(ctx context.Context, path string, content []byte) error {
	_, err := use(ctx, r.sandbox, func(ctx context.Context) (struct{}, error) { return struct{}{}, waking(r).Upload(ctx, path, content) })
	return err
}

// waking is a place.Runner of a sandbox that is about to be used again.
type waking struct{ *sandbox }

// Run implements place.Runner.
func (r waking) Run(ctx context.Context, command string, timeout time.Duration) (string, error) {
	got, err := r.p.api.Execute(ctx, r.Sandbox, command, timeout)
	if err == nil && got.ExitCode != 0 {
		err = &api.Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("a command ended with exit code %d: %.300s", got.ExitCode, got.Result), Stray: true}
	}
	return got.Result, err
}

// Upload implements place.Runner.
func (r waking) Upload(ctx context.Context, path string, content []byte) error {
	return r.p.api.Upload(ctx, r.Sandbox, path, content)
}

// service is a place.Service, and a cells.Service.
type service struct{ p *Provider }

// Box implements both.
func (s service) Box(ctx context.Context, instanceID string) (place.Box, error) {
	sb, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return place.Box{}, err
	}
	workspace, err := sb.workspaceOf(ctx)
	if err != nil {
		return place.Box{}, s.p.explain(ctx, err, sdk.CodeUnavailable, "set up the sandbox")
	}
	// Its environment is the sandbox's own.
	return place.Box{Runner: runner{sb}, ID: sb.ID, Workspace: workspace}, nil
}

// Worth implements place.Service.
func (service) Worth(err error) (time.Duration, bool) { return worth(err) }

// Refused implements place.Service.
func (service) Refused(err error) bool { return denied(err) }

// Explain implements place.Service.
func (s service) Explain(ctx context.Context, err error, doing string) error {
	return s.p.explain(ctx, err, sdk.CodeUnavailable, doing)
}

// Lost implements cells.Service.
func (s service) Lost(box place.Box) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.sandboxes[box.ID] == nil {
		return errNoInstance
	}
	return nil
}

// Load implements cells.Service.
func (s service) Load(_ context.Context, box place.Box) ([]contexts.Saved, error) {
	one, _ := s.p.records.Get(box.ID)
	return one.Contexts, nil
}

// Save implements cells.Service.
func (s service) Save(id string, all []contexts.Saved) error {
	return s.p.change(id, func(one *record) { one.Contexts = all })
}

// Files implements cells.Service.
func (s service) Files(box place.Box) artifacts.Finder {
	return artifacts.Finder{Store: s.p.store(), Instance: box.ID, Most: maxListed}
}

// store is a guestfiles.Store.
type store struct {
	place.Store
	p *Provider
}

func (p *Provider) store() store { return store{place.Store{Service: service{p}}, p} }

// Open implements guestfiles.Store. A download is from the beginning of a file on.
func (s store) Open(ctx context.Context, instanceID, name string, offset, length int64) (io.ReadCloser, error) {
	box, err := service{s.p}.Box(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	sb := box.Runner.(runner).sandbox
	content, err := place.Ask(ctx, service{s.p}, func(context.Context) (io.ReadCloser, error) {
		return use(ctx, sb, func(ctx context.Context) (io.ReadCloser, error) {
			return s.p.api.Download(ctx, sb.Sandbox, box.Real(name))
		})
	})
	if err == nil {
		_, err = io.CopyN(io.Discard, content, offset)
		if err != nil {
			err = errors.Join(err, content.Close())
		}
	}
	if err != nil {
		return nil, s.p.explain(ctx, err, sdk.CodeUnavailable, "read a file")
	}
	return &part{io.LimitReader(content, length), content}, nil
}

// part is a part of a download.
type part struct {
	io.Reader
	io.Closer
}
