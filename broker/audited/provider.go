package audited

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"io/fs"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Explain leaves what the log says as it is: it is not about the plugin.
func (p *provider) Explain(ctx context.Context, err error) error {
	if effect.OfRecorder(err) {
		return err
	}
	return p.client.Explain(ctx, err)
}

// Create records the making of an instance. Where it is made for one execution, the
// record is that of the execution, and Execute ends it.
func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (made sdk.Instance, err error) {
	rec := p.recorder
	e := rec.effect(ctx, OpCreate, "")
	e.Tenant, e.Session, e.Instance = req.Labels[sdk.LabelTenant], req.Labels[sdk.LabelSession], idOf(req.Labels)
	e.Template, e.EnvNames = req.Template, names(req.Env)
	if req.Snapshot != nil {
		e.ProviderSnapshot = req.Snapshot.ID
		ofSnapshot(ctx, &e)
	}
	e.Hosts = hostsOf(req.Network)
	if execution, ok := effect.Purpose(ctx); ok {
		return p.createFor(ctx, execution, e, req)
	}
	err = rec.record(ctx, e, func(o *audit.Outcome) (err error) {
		if made, err = p.client.Create(ctx, req); err == nil {
			rec.made(made, req.Labels, nil)
			o.Made, o.Region = made.ID, made.Metadata["region"]
		}
		return err
	})
	if err != nil {
		return sdk.Instance{}, err
	}
	return made, nil
}

// createFor makes an instance for one execution.
func (p *provider) createFor(ctx context.Context, execution sdk.ExecuteRequest, e audit.Effect, req sdk.CreateRequest) (sdk.Instance, error) {
	rec := p.recorder
	e.Operation, e.Covers = OpExecute, oneShot
	executing(&e, execution)
	r, err := rec.log.Begin(ctx, e)
	if err != nil {
		return sdk.Instance{}, err
	}
	made, err := p.client.Create(ctx, req)
	outcome := audit.Outcome{Detail: "no instance was made for it"}
	if err != nil {
		failed(ctx, &outcome, err)
	} else {
		r.Fill(func(e *audit.Effect) { e.ProviderInstance = made.ID })
		if rec.made(made, req.Labels, &once{record: r, executionID: execution.ExecutionID, codeHash: e.CodeHash}) {
			return made, nil
		}
		outcome = audit.Outcome{Status: audit.StatusUnknown, Made: made.ID, Detail: "the provider had given out its instance before"}
	}
	if unrecorded := r.End(outcome); unrecorded != nil {
		err = unrecorded
	}
	if err != nil {
		return sdk.Instance{}, err
	}
	return made, nil
}

// record makes a call that has an effect. outcome, if not nil, is filled in by it.
func (rec *Recorder) record(ctx context.Context, effect audit.Effect, call func(*audit.Outcome) error) error {
	r, err := rec.log.Begin(ctx, effect)
	if err != nil {
		return err
	}
	return rec.finish(ctx, r, effect.ProviderInstance, call)
}

// finish makes a call that has its line, and ends its record.
func (rec *Recorder) finish(ctx context.Context, r *audit.Record, instanceID string, call func(*audit.Outcome) error) error {
	outcome := audit.Outcome{Status: string(sdk.StatusSucceeded), Region: rec.region(instanceID)}
	err := call(&outcome)
	if err != nil {
		failed(ctx, &outcome, err)
	}
	if unrecorded := r.End(outcome); unrecorded != nil {
		return unrecorded
	}
	return err
}

// Destroy is covered by the effect that the instance was made for, once, when it happens
// for nothing but the end of that. Anything else has lines of its own.
func (p *provider) Destroy(ctx context.Context, instanceID string) error {
	rec := p.recorder
	call := func(*audit.Outcome) error {
		err := p.client.Destroy(ctx, instanceID)
		if err == nil || sdk.CodeOf(err) == sdk.CodeNotFound {
			rec.forget(instanceID)
		}
		return err
	}
	if origin.Of(ctx).Cause == origin.NotKept && rec.coversEnd(instanceID) {
		return call(nil)
	}
	return rec.record(ctx, rec.effect(ctx, OpDestroy, instanceID), call)
}

// List changes nothing; it tells whose instances are, and which are gone.
func (p *provider) List(ctx context.Context) ([]sdk.Instance, error) {
	lacking := p.recorder.all() // what is made meanwhile may not be listed yet
	instances, err := p.client.List(ctx)
	if err != nil {
		return instances, err
	}
	for _, i := range instances {
		p.recorder.listed(i)
		delete(lacking, i.ID)
	}
	patience := failpoint.Hasten(listDelay)
	if p.Describe().Ephemeral {
		patience = 0 // its own process knows
	}
	p.recorder.unlisted(lacking, patience)
	return instances, nil
}

func (p *provider) Pause(ctx context.Context, instanceID string) error {
	return p.recorder.record(ctx, p.recorder.effect(ctx, OpPause, instanceID), func(*audit.Outcome) error {
		return p.client.Pause(ctx, instanceID)
	})
}

func (p *provider) PauseReleasing(ctx context.Context, instanceID string) (released bool, err error) {
	err = p.recorder.record(ctx, p.recorder.effect(ctx, OpPause, instanceID), func(*audit.Outcome) (err error) {
		released, err = p.client.PauseReleasing(ctx, instanceID)
		return err
	})
	return released, err
}

func (p *provider) Resume(ctx context.Context, instanceID string) error {
	return p.recorder.record(ctx, p.recorder.effect(ctx, OpResume, instanceID), func(*audit.Outcome) error {
		return p.client.Resume(ctx, instanceID)
	})
}

func (p *provider) SetTTL(ctx context.Context, instanceID string, ttl time.Duration) (expires time.Time, err error) {
	err = p.recorder.record(ctx, p.recorder.effect(ctx, OpSetTTL, instanceID), func(*audit.Outcome) (err error) {
		expires, err = p.client.SetTTL(ctx, instanceID, ttl)
		return err
	})
	return expires, err
}

func (p *provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (result sdk.ExecuteResult, err error) {
	rec := p.recorder
	call := func(o *audit.Outcome) (err error) {
		result, err = p.client.Execute(ctx, req, out)
		resulted(o, result)
		return err
	}
	if r := rec.begunFor(req); r != nil {
		r.Fill(func(e *audit.Effect) { e.ContextID = req.ContextID })
		err = rec.finish(ctx, r, req.InstanceID, call)
		return result, err
	}
	e := rec.effect(ctx, OpExecute, req.InstanceID)
	executing(&e, req)
	err = rec.record(ctx, e, call)
	return result, err
}

// executing puts an execution into an effect.
func executing(e *audit.Effect, req sdk.ExecuteRequest) {
	e.ExecutionID, e.ContextID, e.Language, e.EnvNames = req.ExecutionID, req.ContextID, string(req.Language), names(req.Env)
	e.Code, e.CodeHash, e.CodeBytes = req.Code, hashOf(req.Code), int64(len(req.Code))
}

// resulted puts a result into an outcome.
func resulted(o *audit.Outcome, result sdk.ExecuteResult) {
	o.Status, o.Error, o.ExitCode = string(result.Status), result.Status.Code(), &result.ExitCode
	o.MemoryUsedMB = math.Round(float64(result.PeakMemoryBytes)/(1<<20)*1e3) / 1e3
}

func (p *provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	e := p.recorder.effect(ctx, OpInterrupt, instanceID)
	e.ExecutionID = executionID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.Interrupt(ctx, instanceID, executionID) })
}

func (p *provider) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (result sdk.ExecuteResult, err error) {
	e := p.recorder.effect(ctx, OpInstall, req.InstanceID)
	e.Language, e.Packages = string(req.Language), packageNames(req.Requirements)
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		result, err = p.client.InstallPackages(ctx, req, out)
		resulted(o, result)
		return err
	})
	return result, err
}

// BuildTemplate is recorded as it is asked for: what is there already changes nothing, which
// only the provider knows.
func (p *provider) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (built sdk.BuiltTemplate, err error) {
	e := p.recorder.effect(ctx, OpBuildTemplate, "")
	e.Template, e.Packages, e.EnvNames, e.Path = req.Name, packageNames(req.Packages), names(req.Env), cmp.Or(req.From, req.Rootfs, req.Dockerfile)
	if req.Network != nil {
		e.Hosts = hostsOf(req.Network)
	}
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		built, err = p.client.BuildTemplate(ctx, req, progress)
		o.Made = built.Image
		return err
	})
	return built, err
}

// RemoveTemplate is recorded with what is removed.
func (p *provider) RemoveTemplate(ctx context.Context, image string) error {
	e := p.recorder.effect(ctx, OpRemoveTemplate, "")
	e.Path = image
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.RemoveTemplate(ctx, image) })
}

// packageNames are requirements without what may hold a secret: the address that a
// package comes from.
func packageNames(requirements []string) []string {
	short := make([]string, 0, len(requirements))
	for _, r := range requirements {
		short = append(short, packageName.FindString(r))
	}
	return short
}

func (p *provider) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (made sdk.CodeContext, err error) {
	e := p.recorder.effect(ctx, OpCreateContext, req.InstanceID)
	e.Language, e.Path, e.EnvNames = string(req.Language), req.Cwd, names(req.Env)
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		made, err = p.client.CreateContext(ctx, req)
		o.Made = made.ID
		return err
	})
	return made, err
}

func (p *provider) RestartContext(ctx context.Context, instanceID, contextID string) error {
	e := p.recorder.effect(ctx, OpRestartContext, instanceID)
	e.ContextID = contextID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.RestartContext(ctx, instanceID, contextID) })
}

func (p *provider) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	e := p.recorder.effect(ctx, OpDeleteContext, instanceID)
	e.ContextID = contextID
	return p.recorder.record(ctx, e, func(*audit.Outcome) error { return p.client.DeleteContext(ctx, instanceID, contextID) })
}

// DialPort is recorded as the connection: what is said over it is between the
// client and the program.
func (p *provider) DialPort(ctx context.Context, instanceID string, port uint16) (conn net.Conn, err error) {
	e := p.recorder.effect(ctx, OpConnect, instanceID)
	e.Port = int(port)
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		conn, err = p.client.DialPort(ctx, instanceID, port)
		return err
	})
	if err != nil && conn != nil {
		_ = conn.Close() // nobody gets it
		conn = nil
	}
	return conn, err
}

// names of variables, sorted; never their values.
func names(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// StartCommand begins a record that ends when the broker sees the end of the
// command, or that of its instance.
func (p *provider) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	rec := p.recorder
	e := rec.effect(ctx, OpCommand, req.InstanceID)
	whole := strings.Join(req.Argv, "\x00")
	e.Code, e.CodeHash, e.CodeBytes = strings.Join(req.Argv, " "), hashOf(whole), int64(len(whole))
	e.Path, e.EnvNames = req.Cwd, names(req.Env)
	if len(req.Argv) > 0 {
		e.Program = req.Argv[0]
	}
	r, err := rec.log.Begin(ctx, e)
	if err != nil {
		return sdk.Command{}, err
	}
	command, err := p.client.StartCommand(ctx, req)
	if err != nil {
		outcome := audit.Outcome{}
		failed(ctx, &outcome, err)
		if unrecorded := r.End(outcome); unrecorded != nil {
			err = unrecorded
		}
		return sdk.Command{}, err
	}
	r.Fill(func(e *audit.Effect) { e.CommandID = command.ID })
	if !rec.started(req.InstanceID, command.ID, r) {
		err = r.End(audit.Outcome{Status: string(sdk.CommandRunning), Detail: "its end is not followed"})
	}
	return command, err
}

// ReadCommand changes nothing; it is where the end of a command shows.
func (p *provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	command, err := p.client.ReadCommand(ctx, req, out)
	if err != nil {
		return command, err
	}
	return command, p.recorder.see(req.InstanceID, command)
}

// ListCommands is another such place.
func (p *provider) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	commands, err := p.client.ListCommands(ctx, instanceID)
	for _, command := range commands {
		if err == nil {
			err = p.recorder.see(instanceID, command)
		}
	}
	return commands, err
}

// see ends the record of a command that has ended, if nobody did before.
func (rec *Recorder) see(instanceID string, command sdk.Command) error {
	if command.State == sdk.CommandRunning || command.State == "" {
		return nil
	}
	r := rec.ended(instanceID, command.ID)
	if r == nil {
		return nil
	}
	return r.End(audit.Outcome{
		Status: string(command.State), Error: sdk.Status(command.State).Code(), ExitCode: &command.ExitCode, Region: rec.region(instanceID),
	})
}

func (p *provider) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	e := p.recorder.effect(ctx, OpInput, instanceID)
	e.CommandID = commandID
	return p.recorder.record(ctx, e, func(o *audit.Outcome) error {
		size := int64(len(data))
		o.Bytes = &size
		return p.client.WriteCommand(ctx, instanceID, commandID, data, end)
	})
}

func (p *provider) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	e := p.recorder.effect(ctx, OpSignal, instanceID)
	e.CommandID, e.Signal = commandID, signal
	return p.recorder.record(ctx, e, func(*audit.Outcome) error {
		return p.client.SignalCommand(ctx, instanceID, commandID, signal)
	})
}

func (p *provider) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, OpWriteFile, req.InstanceID)
	e.Path = req.Path
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		sum := newSumming(content)
		info, err = p.client.WriteFile(ctx, req, sum)
		sum.tell(o)
		return err
	})
	return info, err
}

func (p *provider) WriteArchive(ctx context.Context, instanceID, directory string, content io.Reader) (summary sdk.ArchiveSummary, err error) {
	e := p.recorder.effect(ctx, OpWriteArchive, instanceID)
	e.Path = directory
	err = p.recorder.record(ctx, e, func(o *audit.Outcome) (err error) {
		sum := newSumming(content)
		summary, err = p.client.WriteArchive(ctx, instanceID, directory, sum)
		sum.tell(o)
		return err
	})
	return summary, err
}

func (p *provider) MakeDirectory(ctx context.Context, instanceID, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, OpMakeDirectory, instanceID)
	e.Path = path
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		info, err = p.client.MakeDirectory(ctx, instanceID, path, mode)
		return err
	})
	return info, err
}

func (p *provider) SetFileMode(ctx context.Context, instanceID, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, OpSetFileMode, instanceID)
	e.Path = path
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		info, err = p.client.SetFileMode(ctx, instanceID, path, mode)
		return err
	})
	return info, err
}

func (p *provider) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.move(ctx, OpMoveFile, req, p.client.MoveFile)
}

func (p *provider) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.move(ctx, OpCopyFile, req, p.client.CopyFile)
}

func (p *provider) move(ctx context.Context, operation string, req sdk.MoveFileRequest, call func(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error)) (info sdk.FileInfo, err error) {
	e := p.recorder.effect(ctx, operation, req.InstanceID)
	e.Path, e.To = req.From, req.To
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		info, err = call(ctx, req)
		return err
	})
	return info, err
}

func (p *provider) RemoveFile(ctx context.Context, instanceID, path string, recursive bool) error {
	e := p.recorder.effect(ctx, OpRemoveFile, instanceID)
	e.Path = path
	return p.recorder.record(ctx, e, func(*audit.Outcome) error {
		return p.client.RemoveFile(ctx, instanceID, path, recursive)
	})
}

func (p *provider) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) (replaced []sdk.FileReplacement, err error) {
	e := p.recorder.effect(ctx, OpReplaceInFiles, req.InstanceID)
	e.Paths = req.Paths
	err = p.recorder.record(ctx, e, func(*audit.Outcome) (err error) {
		replaced, err = p.client.ReplaceInFiles(ctx, req)
		return err
	})
	return replaced, err
}

// summing counts what is read through it, and sums it up.
type summing struct {
	from io.Reader
	sum  hash.Hash
	size int64
}

func newSumming(from io.Reader) *summing { return &summing{from: from, sum: sha256.New()} }

func (s *summing) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.sum.Write(p[:n])
	s.size += int64(n)
	return n, err
}

// tell puts what was read into an outcome.
func (s *summing) tell(o *audit.Outcome) {
	o.Bytes, o.Hash = &s.size, "sha256:"+hex.EncodeToString(s.sum.Sum(nil))
}

// The operations, as the log names them.
const (
	OpCreate         = "create_instance"
	OpDestroy        = "destroy_instance"
	OpAdopt          = "adopt_instance"
	OpPause          = "pause_instance"
	OpResume         = "resume_instance"
	OpSetTTL         = "set_ttl"
	OpExecute        = "execute_code"
	OpBuildTemplate  = "build_template"
	OpRemoveTemplate = "remove_template"
	OpInterrupt      = "interrupt_execution"
	OpInstall        = "install_packages"
	OpCreateContext  = "create_context"
	OpRestartContext = "restart_context"
	OpDeleteContext  = "delete_context"
	OpCommand        = "run_command"
	OpInput          = "write_stdin"
	OpSignal         = "signal_command"
	OpWriteFile      = "write_file"
	OpWriteArchive   = "write_archive"
	OpMakeDirectory  = "make_directory"
	OpSetFileMode    = "set_file_mode"
	OpMoveFile       = "move_file"
	OpCopyFile       = "copy_file"
	OpRemoveFile     = "remove_file"
	OpReplaceInFiles = "replace_in_files"
	OpConnect        = "connect_port"
	OpCreateVolume   = "create_volume"
	OpDeleteVolume   = "delete_volume"
	OpSetNetwork     = "set_network"
	// OpReach is a connection that an instance has made, or was refused, and OpReachLost that
	// there were more of them than could be told.
	OpReach     = "reach_host"
	OpReachLost = "reach_host_lost"
	// OpReload and OpReplacePlugin change the broker itself, OpTry starts a provider
	// beside those that it has.
	OpReload        = "change_configuration"
	OpReplacePlugin = "replace_plugin"
	OpTry           = "try_provider"
	// OpDrain takes a broker out of several, or back.
	OpDrain = "drain_broker"
)

// oneShot is what the effect of an execution covers whose instance is made for it.
var oneShot = []string{OpCreate, OpExecute, OpDestroy}

// packageName is the beginning of a requirement, up to where an address may begin.
var packageName = regexp.MustCompile(`^@?[A-Za-z0-9._/-]*(\[[A-Za-z0-9,._-]*\])?([=<>!~]=?=?[A-Za-z0-9.*+_-]+)?`)

// hostsOf are the hosts of a policy, and nothing of its secrets.
func hostsOf(policy *sdk.NetworkPolicy) (hosts []string) {
	if policy == nil {
		return nil
	}
	for _, r := range policy.Rules {
		hosts = append(hosts, r.Host)
	}
	return hosts
}
