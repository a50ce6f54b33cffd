package provider_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// created makes an instance on a service of its own.
func created(t *testing.T) (*aliyunfake.Cloud, *provider.Provider, string) {
	t.Helper()
	cloud := start(t)
	p := configured(t, cloud)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	return cloud, p, made.ID
}

func TestAnswersCutAtAnyByteCostNothing(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	runs := 0
	for _, short := range []bool{false, true} {
		for _, n := range []int{0, 1, 9, 40, 100, 180} {
			cut := aliyunfake.Fault{Cut: n, Short: short}
			if n == 0 && !short {
				cut = aliyunfake.Fault{After: true}
			}
			cut.Action = "CreateSandbox"
			cloud.Fault(cut)
			made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
			assert.NilError(t, err, "%+v", cut)
			assert.Equal(t, cloud.Sandboxes(), 2)
			cut.Action = "DeleteSandbox"
			cloud.Fault(cut)
			assert.NilError(t, p.Destroy(t.Context(), made.ID), "%+v", cut)
			assert.Equal(t, cloud.Sandboxes(), 1)

			cut.Action = "Command"
			cloud.Fault(cut)
			_, printed, err := run(t, p, id, counts)
			assert.NilError(t, err, "%+v", cut)
			runs++
			assert.Equal(t, printed, fmt.Sprintln(runs))
		}
	}
}

func TestACreationThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	for _, action := range []string{"CreateSandbox", "Health", "Command"} {
		cloud.Fault(aliyunfake.Fault{Action: action, Stall: true, Times: 20, Cut: 1})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := cloud.Calls(action)
		failed := make(chan error, 1)
		go func() {
			_, err := p.Create(ctx, sdk.CreateRequest{Template: "python"})
			failed <- err
		}()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if cloud.Calls(action) > before {
				return poll.Success()
			}
			return poll.Continue("%s was not asked for", action)
		}, poll.WithTimeout(2*time.Minute))
		cancel()
		assert.ErrorIs(t, <-failed, context.Canceled)
		assert.Equal(t, cloud.Sandboxes(), 0)
		list, err := p.List(t.Context())
		assert.NilError(t, err)
		assert.Equal(t, len(list), 0)
		cloud.Mend()
	}
}

// listener is told when something is printed.
type listener struct {
	heard
	once chan struct{}
}

func (l *listener) Stdout(p []byte) error {
	select {
	case l.once <- struct{}{}:
	default:
	}
	return l.heard.Stdout(p)
}

const waits = "print('ready', flush=True)\nimport time\ntime.sleep(600)\n"

func TestASandboxThatEndsWhileCodeRunsIsUnavailable(t *testing.T) {
	for name, context := range map[string]bool{"in a process": false, "in a context": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud, p, id := created(t)
			req := sdk.ExecuteRequest{InstanceID: id, ExecutionID: "x", Language: sdk.Python, Code: waits, Timeout: 2 * time.Minute, OutputLimit: 1 << 20}
			if context {
				made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
				assert.NilError(t, err)
				req.ContextID = made.ID
			}
			out := &listener{once: make(chan struct{}, 1)}
			ended := make(chan error, 1)
			go func() {
				_, err := p.Execute(t.Context(), req, out)
				ended <- err
			}()
			<-out.once
			cloud.Expire()
			err := <-ended
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
			assert.Check(t, !knownToBeWithoutEffect(err), "the code ran")
			list, err := p.List(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(list), 0)

			_, err = p.Execute(t.Context(), req, out)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound, "%v", err)
			assert.Check(t, knownToBeWithoutEffect(err), "now it does not")
		})
	}
}

// read follows a command to its end.
func read(t *testing.T, p *provider.Provider, id, command string) (sdk.Command, string) {
	t.Helper()
	var out bytes.Buffer
	state, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(o sdk.CommandOutput) error {
		out.Write(o.Data)
		return nil
	})
	assert.NilError(t, err)
	return state, out.String()
}

func TestCommandsAreStartedAndFedOnceWhateverAnswerIsLost(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	for skip := range 5 { // start, look, write, look, write and close
		for _, after := range []bool{true, false} {
			lost := aliyunfake.Fault{Action: "Command", Skip: skip, After: after}
			cloud.Fault(lost)
			started, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"cat"}, Stdin: true, KeepOutput: 1 << 20})
			assert.NilError(t, err, "%+v", lost)
			assert.NilError(t, p.WriteCommand(t.Context(), id, started.ID, []byte("one "), false))
			assert.NilError(t, p.WriteCommand(t.Context(), id, started.ID, []byte("two"), true))
			state, out := read(t, p, id, started.ID)
			assert.Equal(t, out, "one two", "%+v", lost)
			assert.Equal(t, state.State, sdk.CommandSucceeded)
		}
	}
	list, err := p.ListCommands(t.Context(), id)
	assert.NilError(t, err)
	assert.Equal(t, len(list), 10)
}

func TestFilesAreWrittenWholeWhateverAnswerIsLost(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	for _, content := range []string{"short", strings.Repeat("0123456789", 20_000)} {
		for _, action := range []string{"Command", "Upload", "Download"} {
			for skip := range 4 { // draft, append, append or commit, read
				lost := aliyunfake.Fault{Action: action, Skip: skip, After: true}
				cloud.Fault(lost)
				info, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "f"}, strings.NewReader(content))
				assert.NilError(t, err, "%+v", lost)
				assert.Equal(t, info.Size, int64(len(content)))
				_, reader, err := p.ReadFile(t.Context(), sdk.ReadFileRequest{InstanceID: id, Path: "f", Offset: 2})
				assert.NilError(t, err)
				got, err := io.ReadAll(reader)
				assert.NilError(t, err)
				assert.NilError(t, reader.Close())
				assert.Check(t, string(got) == content[2:], "%+v: %d bytes of %d", lost, len(got), len(content))
				cloud.Mend()
			}
		}
	}
	names := ""
	_, err := p.ListFiles(t.Context(), sdk.ListFilesRequest{InstanceID: id, Path: ".", Depth: 1, Limit: 10}, func(files []sdk.FileInfo) error {
		for _, f := range files {
			names += f.Path + " "
		}
		return nil
	})
	assert.NilError(t, err)
	assert.Equal(t, names, "/workspace/f ")
}

// A cell has no name by which it could be found again, so that nothing is repeated: the
// caller is told, and the context is usable.
func TestCodeInAContextRunsAtMostOnceWhateverAnswerIsLost(t *testing.T) {
	for name, fault := range map[string]aliyunfake.Fault{
		"the answer is lost":        {After: true},
		"the answer is cut":         {Half: true},
		"the gateway gives up":      {After: true, Status: 502, Body: gateway},
		"the gateway fails at once": {Status: 503},
		"a failure with HTTP 200":   {Status: 200, Body: `{"code":"ERR_INTERNAL_SERVER_ERROR","message":"no"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud, p, id := created(t)
			made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
			assert.NilError(t, err)
			fault.Action, fault.Skip = "ExecuteCode", 1 // the cell before the code
			cloud.Fault(fault)
			req := sdk.ExecuteRequest{InstanceID: id, ExecutionID: "x", ContextID: made.ID, Code: counts, Timeout: 2 * time.Minute, OutputLimit: 1 << 20}
			_, err = p.Execute(t.Context(), req, &heard{})
			code := sdk.CodeOf(err)
			assert.Check(t, code == sdk.CodeUnavailable || code == sdk.CodeConnectionFailed, "%v", err)
			out := &heard{}
			result, err := p.Execute(t.Context(), req, out)
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusSucceeded)
			times := strings.TrimSpace(out.stdout.String())
			assert.Check(t, times == "1" || times == "2", "it has run %s times after two executions", times)
		})
	}
}

func TestAKernelWhoseCreationFailsIsNotLeft(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	for name, fault := range map[string]aliyunfake.Fault{
		"the answer is lost":        {Action: "CreateContext", After: true},
		"the answer is cut":         {Action: "CreateContext", Half: true},
		"the gateway gives up":      {Action: "CreateContext", After: true, Status: 504, Body: gateway},
		"the first cell fails":      {Action: "ExecuteCode", Status: 500},
		"the first cell is refused": {Action: "ExecuteCode", Status: 200, Body: `{"results":[{"type":"error","text":"ReferenceError: require is not defined"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			cloud.Fault(fault)
			_, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
			assert.Check(t, sdk.CodeOf(err) != "", "%v", err)
			left, err := cloud.Kernels()
			assert.NilError(t, err)
			assert.Equal(t, left, 0)
			list, err := p.ListContexts(t.Context(), id)
			assert.NilError(t, err)
			assert.Equal(t, len(list), 0)
		})
	}
}

func TestAKernelThatIsGoneIsReplaced(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python, Env: map[string]string{"NAME": "value"}})
	assert.NilError(t, err)
	cloud.Fault(aliyunfake.Fault{Action: "ExecuteCode", Status: 404, Body: `{"error":{"code":"NOT_FOUND","message":"no such context"}}`})
	out := &heard{}
	result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
		InstanceID: id, ExecutionID: "x", ContextID: made.ID, Code: "import os\nprint(os.environ['NAME'])", Timeout: 2 * time.Minute, OutputLimit: 1 << 20,
	}, out)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded)
	assert.Equal(t, out.stdout.String(), "value\n")
}

func TestContextsAndCommandsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	state := t.TempDir()
	p, err := configure(t, given(cloud), state)
	assert.NilError(t, err)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.NilError(t, err)
	kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: made.ID, Language: sdk.Python})
	assert.NilError(t, err)
	in := func(p *provider.Provider, code string) string {
		out := &heard{}
		result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: made.ID, ExecutionID: "x", ContextID: kernel.ID, Code: code, Timeout: 2 * time.Minute, OutputLimit: 1 << 20}, out)
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusSucceeded)
		return out.stdout.String()
	}
	in(p, "x = 42")
	command, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: made.ID, Argv: []string{"sh", "-c", "read a; echo got $a"}, Stdin: true, KeepOutput: 1 << 10})
	assert.NilError(t, err)

	after, err := configure(t, given(cloud), state)
	assert.NilError(t, err)
	assert.Equal(t, in(after, "print(x)"), "42\n")
	assert.NilError(t, after.WriteCommand(t.Context(), made.ID, command.ID, []byte("it\n"), false))
	_, out := read(t, after, made.ID, command.ID)
	assert.Equal(t, out, "got it\n")
}

func TestATokenThatHasExpiredIsSaidAndANewOneHelps(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	cloud.Expel(true)
	_, _, err := run(t, p, id, counts)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, !health.Healthy)
	cloud.Expel(false)
	_, printed, err := run(t, p, id, counts)
	assert.NilError(t, err)
	assert.Equal(t, printed, "1\n")
	assert.Equal(t, cloud.Sandboxes(), 1)
}

func TestArtifactsAreFoundByPatterns(t *testing.T) {
	t.Parallel()
	_, p, id := created(t)
	kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	const code = `import os
os.makedirs("deep/er", exist_ok=True)
os.makedirs("artifacts", exist_ok=True)
for name in ("a.txt", "b.txt", "c.bin", "deep/er/b.txt", "artifacts/[new]"):
    with open(name, "w") as f:
        f.write("x")
`
	for _, context := range []string{"", kernel.ID} {
		out := &shown{}
		req := sdk.ExecuteRequest{
			InstanceID: id, ExecutionID: "x", ContextID: context, Code: code, Timeout: 2 * time.Minute, OutputLimit: 1 << 20,
			Artifacts: &sdk.ArtifactLimits{MaxCount: 10, MaxBytes: 1 << 20, MaxTotalBytes: 1 << 20, Files: []string{"*.txt", "c.bin", "**/b.txt", "*.none"}},
		}
		if context == "" {
			req.Language = sdk.Python
		}
		_, err := p.Execute(t.Context(), req, out)
		assert.NilError(t, err)
		var names []string
		for _, a := range out.artifacts {
			names = append(names, a.Name)
			assert.Equal(t, a.Refused != "", a.Name == "*.none", "%+v", a)
		}
		assert.DeepEqual(t, names, []string{"c.bin", "a.txt", "b.txt", "deep/er/b.txt", "*.none", "artifacts/[new]"})
	}
}

func TestJavaScriptWhoseOutputComesLateHasNoContexts(t *testing.T) {
	t.Parallel()
	cloud := startWith(t, aliyunfake.Options{Notebook: true})
	p := configured(t, cloud)
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "nodejs"})
	assert.NilError(t, err)
	_, err = p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: made.ID, Language: sdk.JavaScript})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotSupported, "%v", err)
	assert.ErrorContains(t, err, "only when a cell has ended")
	left, err := cloud.Kernels()
	assert.NilError(t, err)
	assert.Equal(t, left, 0)
}

// Where code may not make /workspace the interface has it nevertheless.
func TestAnOrdinaryUserHasAWorkspace(t *testing.T) {
	for name, test := range map[string]struct {
		sudo bool
		want string
	}{"by sudo": {true, "/workspace"}, "in its home": {false, "/home/user/workspace"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := configured(t, startWith(t, aliyunfake.Options{User: true, Sudo: test.sudo}))
			made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
			assert.NilError(t, err)
			assert.Equal(t, made.Metadata["workspace"], test.want)
			info, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: made.ID, Path: "/workspace/d/f", MakeParents: true}, strings.NewReader("x"))
			assert.NilError(t, err)
			assert.Equal(t, info.Path, "/workspace/d/f")
			var paths []string
			_, err = p.ListFiles(t.Context(), sdk.ListFilesRequest{InstanceID: made.ID, Path: "/workspace", Depth: 2, Limit: 10}, func(files []sdk.FileInfo) error {
				for _, f := range files {
					paths = append(paths, f.Path)
				}
				return nil
			})
			assert.NilError(t, err)
			assert.DeepEqual(t, paths, []string{"/workspace/d", "/workspace/d/f"})
			_, printed, err := run(t, p, made.ID, "import os\nprint(os.getcwd(), open('d/f').read(), os.getuid())")
			assert.NilError(t, err)
			assert.Equal(t, printed, test.want+" x 1000\n")
			command, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: made.ID, Argv: []string{"cat", "f"}, Cwd: "/workspace/d", KeepOutput: 1 << 10})
			assert.NilError(t, err)
			assert.Equal(t, command.Cwd, "/workspace/d")
			_, out := read(t, p, made.ID, command.ID)
			assert.Equal(t, out, "x")
		})
	}
}

func TestASandboxIsKeptByUseAndByNothingElse(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	assert.DeepEqual(t, cloud.IdleTimeouts(), []time.Duration{10 * time.Minute})
	for range 3 {
		cloud.Forward(6 * time.Minute)
		_, _, err := run(t, p, id, "print(1)")
		assert.NilError(t, err)
	}
	cloud.Forward(11 * time.Minute)
	assert.Equal(t, cloud.Sandboxes(), 0)
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", TTL: 24 * time.Hour})
	assert.NilError(t, err)
	assert.DeepEqual(t, cloud.IdleTimeouts(), []time.Duration{10 * time.Minute})
}

func TestASandboxThatHasEndedIsGoneHoweverThatIsSaid(t *testing.T) {
	t.Parallel()
	cloud, p, id := created(t)
	ended := aliyunfake.Fault{Action: "Command", Times: 9, Status: 409, Body: `{"code":"ERR_BAD_REQUEST","message":"sandbox is TERMINATED"}`}
	cloud.Fault(ended)
	cloud.Fault(aliyunfake.Fault{Action: "GetSandbox", Times: 9, Status: 200, Body: `{"code":"SUCCESS","data":{"sandboxId":"` + id + `","status":"TERMINATED"}}`})
	_, _, err := run(t, p, id, "print(1)")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound, "%v", err)
}

func TestWhatHasEndedIsNotLookedAtAgain(t *testing.T) {
	t.Parallel()
	cloud, p, _ := created(t)
	cloud.PageSize = 2
	for range 7 {
		_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
		assert.NilError(t, err)
	}
	cloud.Fault(aliyunfake.Fault{Action: "ListSandboxes", Skip: 1, Half: true})
	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 8)

	cloud.Expire()
	_, err = p.List(t.Context())
	assert.NilError(t, err)
	asked := cloud.Calls("GetSandbox")
	_, err = p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, cloud.Calls("GetSandbox"), asked, "what has ended is known")
}

// A command of the service is one argument to a shell, which takes 128 KiB.
func TestVariablesOfACommandMayBeLong(t *testing.T) {
	t.Parallel()
	_, p, id := created(t)
	long := strings.Repeat("it's long\n", 10_000)
	command, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"printenv", "LONG"}, Env: map[string]string{"LONG": long}, KeepOutput: 1 << 20})
	assert.NilError(t, err)
	_, out := read(t, p, id, command.ID)
	assert.Equal(t, out, long+"\n")
}
