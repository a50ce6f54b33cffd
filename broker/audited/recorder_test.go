package audited_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a client that can do everything, and says what was called.
type everything struct {
	calls []string
	// fail is what every call returns.
	fail error
	// ended says that commands have ended.
	ended bool
	list  []sdk.Instance
	// ephemeral says that its instances end with its process.
	ephemeral bool
	// news is what it tells of its networks.
	news sdk.NetworkReport
}

func (e *everything) called(name string) error {
	e.calls = append(e.calls, name)
	return e.fail
}

func (e *everything) Describe() sdk.Description {
	return sdk.Description{Name: "everything", Ephemeral: e.ephemeral}
}

func (e *everything) Configure(context.Context, sdk.ConfigureRequest) error {
	return e.called("Configure")
}

func (e *everything) Health(context.Context) (sdk.Health, error) {
	return sdk.Health{Healthy: true}, e.called("Health")
}

func (e *everything) Create(_ context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	return sdk.Instance{ID: "i-1", Labels: req.Labels, Metadata: map[string]string{"region": "eu"}}, e.called("Create")
}

func (e *everything) Execute(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
	return sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 137, PeakMemoryBytes: 3 << 19}, e.called("Execute")
}
func (e *everything) Destroy(context.Context, string) error { return e.called("Destroy") }
func (e *everything) List(context.Context) ([]sdk.Instance, error) {
	return e.list, e.called("List")
}

func (e *everything) Interrupt(context.Context, string, string) error { return e.called("Interrupt") }

func (e *everything) CreateContext(context.Context, sdk.CreateContextRequest) (sdk.CodeContext, error) {
	return sdk.CodeContext{ID: "c-1"}, e.called("CreateContext")
}

func (e *everything) ListContexts(context.Context, string) ([]sdk.CodeContext, error) {
	return nil, e.called("ListContexts")
}

func (e *everything) RestartContext(context.Context, string, string) error {
	return e.called("RestartContext")
}

func (e *everything) DeleteContext(context.Context, string, string) error {
	return e.called("DeleteContext")
}

func (e *everything) command() sdk.Command {
	c := sdk.Command{ID: "k-1", State: sdk.CommandRunning}
	if e.ended {
		c.State, c.ExitCode = sdk.CommandFailed, 4
	}
	return c
}

func (e *everything) StartCommand(context.Context, sdk.CommandRequest) (sdk.Command, error) {
	return sdk.Command{ID: "k-1", State: sdk.CommandRunning}, e.called("StartCommand")
}

func (e *everything) ListCommands(context.Context, string) ([]sdk.Command, error) {
	return []sdk.Command{e.command()}, e.called("ListCommands")
}

func (e *everything) ReadCommand(context.Context, sdk.ReadCommandRequest, func(sdk.CommandOutput) error) (sdk.Command, error) {
	return e.command(), e.called("ReadCommand")
}

func (e *everything) WriteCommand(context.Context, string, string, []byte, bool) error {
	return e.called("WriteCommand")
}

func (e *everything) ResizeCommand(context.Context, string, string, sdk.TerminalSize) error {
	return e.called("ResizeCommand")
}

func (e *everything) SignalCommand(context.Context, string, string, string) error {
	return e.called("SignalCommand")
}

func (e *everything) StatFile(context.Context, string, string) (sdk.FileInfo, error) {
	return sdk.FileInfo{}, e.called("StatFile")
}

func (e *everything) ListFiles(context.Context, sdk.ListFilesRequest, func([]sdk.FileInfo) error) (bool, error) {
	return false, e.called("ListFiles")
}

func (e *everything) ReadFile(context.Context, sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	return sdk.FileInfo{}, nil, e.called("ReadFile")
}

func (e *everything) WriteFile(_ context.Context, _ sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	if content != nil {
		_, _ = io.Copy(io.Discard, content)
	}
	return sdk.FileInfo{}, e.called("WriteFile")
}

func (e *everything) MakeDirectory(context.Context, string, string, fs.FileMode) (sdk.FileInfo, error) {
	return sdk.FileInfo{}, e.called("MakeDirectory")
}

func (e *everything) SetFileMode(context.Context, string, string, fs.FileMode) (sdk.FileInfo, error) {
	return sdk.FileInfo{}, e.called("SetFileMode")
}

func (e *everything) MoveFile(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return sdk.FileInfo{}, e.called("MoveFile")
}

func (e *everything) CopyFile(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return sdk.FileInfo{}, e.called("CopyFile")
}

func (e *everything) RemoveFile(context.Context, string, string, bool) error {
	return e.called("RemoveFile")
}

func (e *everything) SearchFiles(context.Context, sdk.SearchFilesRequest, func([]sdk.FileMatch) error) (bool, error) {
	return false, e.called("SearchFiles")
}

func (e *everything) ReplaceInFiles(context.Context, sdk.ReplaceInFilesRequest) ([]sdk.FileReplacement, error) {
	return nil, e.called("ReplaceInFiles")
}

func (e *everything) WatchFiles(context.Context, sdk.WatchFilesRequest, func() error, func([]sdk.FileChange) error) error {
	return e.called("WatchFiles")
}

func (e *everything) ReadArchive(context.Context, sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	return nil, e.called("ReadArchive")
}

func (e *everything) WriteArchive(context.Context, string, string, io.Reader) (sdk.ArchiveSummary, error) {
	return sdk.ArchiveSummary{}, e.called("WriteArchive")
}

func (e *everything) DialPort(context.Context, string, uint16) (net.Conn, error) {
	return nil, e.called("DialPort")
}
func (e *everything) Pause(context.Context, string) error { return e.called("Pause") }
func (e *everything) PauseReleasing(context.Context, string) (bool, error) {
	return false, e.called("PauseReleasing")
}
func (e *everything) Resume(context.Context, string) error { return e.called("Resume") }
func (e *everything) SetTTL(context.Context, string, time.Duration) (time.Time, error) {
	return time.Time{}, e.called("SetTTL")
}

func (e *everything) InstanceMetrics(context.Context, string) (sdk.InstanceMetrics, error) {
	return sdk.InstanceMetrics{}, e.called("InstanceMetrics")
}

func (e *everything) CheckPackages(context.Context, sdk.Language, []string) error {
	return e.called("CheckPackages")
}

func (e *everything) CreateVolume(context.Context, sdk.CreateVolumeRequest) (sdk.Volume, error) {
	return sdk.Volume{}, e.called("CreateVolume")
}

func (e *everything) DeleteVolume(context.Context, string) error { return e.called("DeleteVolume") }

func (e *everything) ListVolumes(context.Context) ([]sdk.Volume, error) { return nil, nil }

func (e *everything) InstallPackages(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error) {
	return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, e.called("InstallPackages")
}

func (e *everything) BuildTemplate(context.Context, sdk.BuildTemplateRequest, func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	return sdk.BuiltTemplate{}, e.called("BuildTemplate")
}

func (e *everything) ListTemplates(context.Context) ([]sdk.BuiltTemplate, error) {
	return nil, e.called("ListTemplates")
}

func (e *everything) RemoveTemplate(context.Context, string) error {
	return e.called("RemoveTemplate")
}

func (e *everything) SetNetwork(context.Context, string, sdk.NetworkPolicy) error {
	return e.called("SetNetwork")
}

func (e *everything) FollowNetwork(_ context.Context, report func(sdk.NetworkReport) error) error {
	if len(e.news.Connections) > 0 {
		return errors.Join(report(e.news), e.called("FollowNetwork"))
	}
	return e.called("FollowNetwork")
}

func (e *everything) ListOf(context.Context, string) ([]sdk.Instance, error) {
	return nil, e.called("ListOf")
}

func (e *everything) Adopt(context.Context, string, string) error { return e.called("Adopt") }

func (e *everything) Release(context.Context, string) error { return e.called("Release") }

func (e *everything) Snapshot(_ context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	return sdk.Snapshot{ID: "s-1", Labels: req.Labels, Bytes: 7}, e.called("Snapshot")
}

func (e *everything) DeleteSnapshot(context.Context, string) error { return e.called("DeleteSnapshot") }

func (e *everything) ListSnapshots(context.Context) ([]sdk.Snapshot, error) {
	return nil, e.called("ListSnapshots")
}

func (e *everything) Explain(_ context.Context, err error) error {
	return errors.Join(errors.New("explained"), err)
}

// looks are the methods that change nothing. The interrupt, the input and the signal
// of something that is recorded are effects of their own; the size of a terminal is
// not.
var looks = []string{
	"CheckPackages", "Describe", "Explain", "FollowNetwork", "Health", "InstanceMetrics", "List", "ListCommands", "ListContexts", "ListFiles",
	"ListOf", "ListSnapshots", "ListTemplates", "ListVolumes", "ReadArchive", "ReadCommand", "ReadFile", "Release", "ResizeCommand", "SearchFiles", "StatFile", "WatchFiles",
}

// apart are those that the supervision of a plugin calls by itself: they concern the
// plugin and none of the instances.
var apart = []string{"Close", "Configure", "Drain", "Validate"}

// scene is a provider under recorder, with a log to read.
type scene struct {
	client   *everything
	provider sdk.Provider
	log      *audit.Log
	dir      string
}

func newScene(t *testing.T, o audit.Options) *scene {
	t.Helper()
	s := &scene{client: &everything{}, dir: filepath.Join(scratch.Dir(t), "audit")}
	o.Dir, o.Logger = s.dir, hclog.NewNullLogger()
	var err error
	s.log, err = audit.Open(o)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, s.log.Close(context.Background())) })
	s.provider, err = audited.NewRecorder("box", s.log).Provider(s.client)
	assert.NilError(t, err)
	return s
}

// lines are those about effects.
func (s *scene) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	segments, err := audit.Segments(s.dir)
	assert.NilError(t, err)
	for _, segment := range segments {
		r, err := audit.OpenReader(segment.Path, segment.Compressed)
		assert.NilError(t, err)
		for {
			text, err := r.Next()
			if err != nil {
				break
			}
			var l map[string]any
			assert.NilError(t, json.Unmarshal(text, &l))
			if l["event"] == "begin" || l["event"] == "end" {
				lines = append(lines, l)
			}
		}
		assert.NilError(t, r.Close())
	}
	return lines
}

// call calls a method with nothing.
func call(t *testing.T, provider sdk.Provider, name string) error {
	t.Helper()
	method := reflect.ValueOf(provider).MethodByName(name)
	var args []reflect.Value
	for i := range method.Type().NumIn() {
		switch in := method.Type().In(i); in {
		case reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(t.Context()))
		case reflect.TypeFor[io.Reader]():
			args = append(args, reflect.ValueOf(strings.NewReader("")))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	results := method.Call(args)
	err, _ := results[len(results)-1].Interface().(error)
	return err
}

func methodsOf(t reflect.Type) (names []string) {
	for m := range t.Methods() {
		names = append(names, m.Name)
	}
	return names
}

func TestEveryCallOfAPluginIsRecordedOrOnlyLooks(t *testing.T) {
	s := newScene(t, audit.Options{})
	offered := methodsOf(reflect.TypeOf(s.provider))
	for _, name := range methodsOf(reflect.TypeFor[*wire.Client]()) {
		if !slices.Contains(apart, name) {
			assert.Check(t, is.Contains(offered, name), "plugins can do it, and nobody would get to it")
		}
	}
	for _, name := range offered {
		if slices.Contains(apart, name) {
			continue
		}
		before := len(s.lines(t))
		_ = call(t, s.provider, name)
		recorded := len(s.lines(t)) > before
		assert.Check(t, recorded != slices.Contains(looks, name), "%s: recorded is %v", name, recorded)
	}
}

func TestNothingIsCalledThatCannotBeRecorded(t *testing.T) {
	full := false
	s := newScene(t, audit.Options{RetryEvery: time.Hour, Open: func(path string, fresh bool) (audit.File, error) {
		file, err := audit.OpenFile(path, fresh)
		return &fillable{file, &full}, err
	}})
	full = true
	for _, name := range methodsOf(reflect.TypeOf(s.provider)) {
		if slices.Contains(apart, name) || slices.Contains(looks, name) {
			continue
		}
		s.client.calls = nil
		err := call(t, s.provider, name)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable}, name)
		assert.Equal(t, len(s.client.calls), 0, name)
		explained := s.provider.(interface {
			Explain(ctx context.Context, err error) error
		}).Explain(t.Context(), err)
		assert.Check(t, !strings.Contains(explained.Error(), "explained"), "it is not the plugin's fault")
	}
}

// fillable is a file on a disk that may be full.
type fillable struct {
	audit.File
	full *bool
}

func (f *fillable) Write(p []byte) (int, error) {
	if *f.full {
		return 0, errors.New("no space left on device")
	}
	return f.File.Write(p)
}

var labels = map[string]string{sdk.LabelTenant: "acme", sdk.LabelSession: "s", sdk.LabelInstance: "xyz"}

func TestALineSaysWhoDidWhatWhereAndWhatCameOfIt(t *testing.T) {
	s := newScene(t, audit.Options{})
	ctx := origin.With(t.Context(), origin.Origin{Cause: origin.Request, Tenant: "acme", RequestID: "r-1", Remote: "192.0.2.1:5", FrontDoor: "ragflow"})
	_, err := s.provider.Create(ctx, sdk.CreateRequest{Template: "python", Labels: labels, Env: map[string]string{"B": "secret", "A": "secret"}})
	assert.NilError(t, err)
	_, err = s.provider.Execute(ctx, sdk.ExecuteRequest{
		InstanceID: "i-1", ExecutionID: "x-1", Language: sdk.Python, Code: "print(1)", Arguments: json.RawMessage(`{"password":"secret"}`),
	}, nil)
	assert.NilError(t, err)

	lines := s.lines(t)
	for _, begin := range []map[string]any{lines[0], lines[2]} {
		assert.Equal(t, begin["event"], "begin")
		assert.Equal(t, begin["front_door"], "ragflow")
	}
	create, executed := lines[1], lines[3]
	assert.DeepEqual(t, without(create), map[string]any{
		"event": "end", "operation": "create_instance", "cause": "request", "tenant_id": "acme", "session_id": "s", "provider": "box",
		"instance_id": "acme:s:xyz", "request_id": "r-1", "remote": "192.0.2.1:5", "front_door": "ragflow", "template": "python", "env_names": []any{"A", "B"},
		"status": "succeeded", "made": "i-1", "region": "eu",
	})
	assert.DeepEqual(t, without(executed), map[string]any{
		"event": "end", "operation": "execute_code", "cause": "request", "tenant_id": "acme", "session_id": "s", "provider": "box",
		"instance_id": "acme:s:xyz", "provider_instance": "i-1", "request_id": "r-1", "remote": "192.0.2.1:5", "front_door": "ragflow",
		"execution_id": "x-1", "language": "python", "code_bytes": 8.0,
		"code_hash": fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("print(1)"))),
		"status":    "timeout", "error": "SB005", "exit_code": 137.0, "memory_used_mb": 1.5, "region": "eu",
	})
	text, err := json.Marshal(lines)
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(text), "secret"))
	assert.Check(t, !strings.Contains(string(text), "print"))
}

// without leaves out what differs from run to run.
func without(line map[string]any) map[string]any {
	for _, name := range []string{"seq", "prev", "hash", "timestamp", "effect_id", "duration_ms"} {
		delete(line, name)
	}
	return line
}

func TestAFailureIsACodeAndNotTheProvidersWords(t *testing.T) {
	s := newScene(t, audit.Options{})
	s.client.fail = sdk.Errorf(sdk.CodeConnectionFailed, "the key sk-123 was refused")
	err := s.provider.Destroy(t.Context(), "i-1")
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConnectionFailed})
	end := s.lines(t)[1]
	assert.Equal(t, end["status"], "error")
	assert.Equal(t, end["error"], "SB003")
	assert.Equal(t, end["cause"], "broker")
	text, err := json.Marshal(s.lines(t))
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(text), "sk-123"))
}

func TestWhoseAnInstanceIsComesFromItsLabels(t *testing.T) {
	s := newScene(t, audit.Options{})
	s.client.list = []sdk.Instance{{ID: "i-9", Labels: labels, Metadata: map[string]string{"region": "asia"}}}
	_, err := s.provider.List(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, s.provider.Destroy(origin.With(t.Context(), origin.Origin{Cause: origin.Reconcile}), "i-9"))
	end := s.lines(t)[1]
	assert.Equal(t, end["tenant_id"], "acme")
	assert.Equal(t, end["instance_id"], "acme:s:xyz")
	assert.Equal(t, end["cause"], "reconcile")
	_, has := end["front_door"]
	assert.Check(t, !has, "of no front door")
}

func TestACommandHasItsEndWhenSomebodySeesIt(t *testing.T) {
	s := newScene(t, audit.Options{})
	_, err := s.provider.Create(t.Context(), sdk.CreateRequest{Labels: labels})
	assert.NilError(t, err)
	commands := s.provider.(sdk.Commands)
	read := func() {
		t.Helper()
		_, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i-1", CommandID: "k-1"}, nil)
		assert.NilError(t, err)
	}
	_, err = commands.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: "i-1", Argv: []string{"curl", "--password", "secret"}})
	assert.NilError(t, err)
	read()
	assert.Equal(t, len(s.lines(t)), 3, "it runs")
	s.client.ended = true
	read()
	read()
	lines := s.lines(t)
	assert.Equal(t, len(lines), 4, "it has ended, once")
	end := lines[3]
	assert.Equal(t, end["operation"], "run_command")
	assert.Equal(t, end["program"], "curl")
	assert.Equal(t, end["command_id"], "k-1")
	assert.Equal(t, end["status"], "failed")
	assert.Equal(t, end["exit_code"], 4.0)
	text, err := json.Marshal(lines)
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(text), "secret"))
}

func TestACommandThatNobodySeesEndingEndsWithItsInstance(t *testing.T) {
	for name, end := range map[string]func(*scene) error{
		"destroyed": func(s *scene) error { return s.provider.Destroy(context.Background(), "i-1") },
		"gone":      func(s *scene) error { _, err := s.provider.List(context.Background()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, audit.Options{})
			s.client.ephemeral = true
			_, err := s.provider.Create(t.Context(), sdk.CreateRequest{Labels: labels})
			assert.NilError(t, err)
			_, err = s.provider.(sdk.Commands).StartCommand(t.Context(), sdk.CommandRequest{InstanceID: "i-1", Argv: []string{"sleep"}})
			assert.NilError(t, err)
			assert.NilError(t, end(s))
			report, err := audit.Verify([]string{s.dir}, nil)
			assert.NilError(t, err)
			assert.Equal(t, report.Open, 0)
		})
	}
}

func TestAWrittenFileHasItsSizeAndSum(t *testing.T) {
	s := newScene(t, audit.Options{})
	_, err := s.provider.(sdk.Files).WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: "i-1", Path: "/workspace/x"}, strings.NewReader("abc"))
	assert.NilError(t, err)
	end := s.lines(t)[1]
	assert.Equal(t, end["path"], "/workspace/x")
	assert.Equal(t, end["bytes"], 3.0)
	assert.Equal(t, end["content_hash"], "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
}

func TestPackagesAreNamedWithoutTheirAddresses(t *testing.T) {
	s := newScene(t, audit.Options{})
	_, err := s.provider.(sdk.PackageInstaller).InstallPackages(t.Context(), sdk.InstallPackagesRequest{
		InstanceID: "i-1", Language: sdk.Python,
		Requirements: []string{"numpy==2.1", "pkg @ https://me:secret@example.com/pkg.whl", "https://me:secret@example.com/x", "@scope/pkg", "a[b]>=1"},
	}, nil)
	assert.NilError(t, err)
	begin := s.lines(t)[0]
	assert.DeepEqual(t, begin["packages"], []any{"numpy==2.1", "pkg", "https", "@scope/pkg", "a[b]>=1"})
}

func TestOneEffectCoversAnExecutionAndTheInstanceThatIsMadeForIt(t *testing.T) {
	covers := []any{"create_instance", "execute_code", "destroy_instance"}
	whole := sdk.ExecuteRequest{InstanceID: "i-1", ExecutionID: "x-1", Language: sdk.Python, Code: "print(1)"}
	request := origin.With(context.Background(), origin.Origin{Cause: origin.Request, Tenant: "acme"})
	create := func(t *testing.T, s *scene) {
		t.Helper()
		_, err := s.provider.Create(effect.MadeFor(request, whole), sdk.CreateRequest{Labels: labels})
		assert.NilError(t, err)
	}
	execute := func(t *testing.T, s *scene) {
		t.Helper()
		_, err := s.provider.Execute(request, whole, nil)
		assert.NilError(t, err)
	}
	other := func(t *testing.T, s *scene) {
		t.Helper()
		req := whole
		req.Code = "print(2)"
		_, err := s.provider.Execute(request, req, nil)
		assert.NilError(t, err)
	}
	destroy := func(cause origin.Cause) func(t *testing.T, s *scene) {
		return func(t *testing.T, s *scene) {
			t.Helper()
			assert.NilError(t, s.provider.Destroy(origin.With(context.Background(), origin.Origin{Cause: cause}), "i-1"))
		}
	}
	fail := func(t *testing.T, s *scene) {
		t.Helper()
		s.client.fail = sdk.Errorf(sdk.CodeConnectionFailed, "no")
		defer func() { s.client.fail = nil }()
		err := s.provider.Destroy(origin.With(context.Background(), origin.Origin{Cause: origin.NotKept}), "i-1")
		assert.ErrorIs(t, err, s.client.fail)
	}
	for name, test := range map[string]struct {
		steps []func(*testing.T, *scene)
		// want are operations and statuses of the ends, in their order.
		want []string
	}{
		"run and not kept": {
			[]func(*testing.T, *scene){create, execute, destroy(origin.NotKept)}, []string{"execute_code timeout"},
		},
		"executed in twice": {
			[]func(*testing.T, *scene){create, execute, execute}, []string{"execute_code timeout", "execute_code timeout"},
		},
		"used by another execution first": {
			[]func(*testing.T, *scene){create, other, execute}, []string{"execute_code timeout", "execute_code timeout"},
		},
		"destroyed by an administrator": {
			[]func(*testing.T, *scene){create, execute, destroy(origin.Admin)}, []string{"execute_code timeout", "destroy_instance succeeded"},
		},
		"destroyed before it ran": {
			[]func(*testing.T, *scene){create, destroy(origin.NotKept)}, []string{"execute_code cancelled"},
		},
		"destroyed at the second try": {
			[]func(*testing.T, *scene){create, execute, fail, destroy(origin.NotKept)},
			[]string{"execute_code timeout", "destroy_instance succeeded"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, audit.Options{})
			for _, step := range test.steps {
				step(t, s)
			}
			var got []string
			for _, l := range s.lines(t) {
				if l["event"] == "end" {
					got = append(got, fmt.Sprint(l["operation"], " ", l["status"]))
				}
			}
			assert.DeepEqual(t, got, test.want)
			first := s.lines(t)[0]
			assert.DeepEqual(t, first["covers"], covers)
			assert.Equal(t, first["instance_id"], "acme:s:xyz")
			assert.Equal(t, first["execution_id"], "x-1")
			report, err := audit.Verify([]string{s.dir}, nil)
			assert.NilError(t, err)
			assert.Equal(t, report.Open, 0)
		})
	}

	t.Run("not made", func(t *testing.T) {
		s := newScene(t, audit.Options{})
		s.client.fail = sdk.Errorf(sdk.CodeConnectionFailed, "no")
		_, err := s.provider.Create(effect.MadeFor(request, whole), sdk.CreateRequest{Labels: labels})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConnectionFailed})
		end := s.lines(t)[1]
		assert.Equal(t, end["status"], "error")
		assert.Equal(t, end["error"], "SB003")
		assert.Equal(t, end["detail"], "no instance was made for it")
	})
	t.Run("nothing without its line", func(t *testing.T) {
		full := false
		s := newScene(t, audit.Options{RetryEvery: time.Hour, Open: func(path string, fresh bool) (audit.File, error) {
			file, err := audit.OpenFile(path, fresh)
			return &fillable{file, &full}, err
		}})
		full = true
		_, err := s.provider.Create(effect.MadeFor(request, whole), sdk.CreateRequest{Labels: labels})
		assert.Check(t, effect.Refused(err), "%v", err)
		assert.Equal(t, len(s.client.calls), 0)
	})
}
