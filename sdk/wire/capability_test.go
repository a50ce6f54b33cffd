package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// capable has every capability. It repeats what it is asked, so that a test sees
// what crossed the wire.
type capable struct {
	scripted
	files map[string]string
}

func newCapable() *capable {
	c := &capable{files: map[string]string{}}
	c.description = sdk.Description{Name: "capable", Capabilities: []sdk.Capability{sdk.CapabilityArtifacts, "made_up"}}
	return c
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func (*capable) CreateContext(_ context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	return sdk.CodeContext{ID: req.InstanceID + "-" + req.Env["A"], Language: req.Language, Cwd: req.Cwd, CreatedAt: epoch, Busy: true}, nil
}

func (*capable) ListContexts(_ context.Context, id string) ([]sdk.CodeContext, error) {
	return []sdk.CodeContext{{ID: id, Language: sdk.Python, CreatedAt: epoch}}, nil
}

func (*capable) RestartContext(_ context.Context, id, context string) error {
	return sdk.Errorf(sdk.CodeNotFound, "%s %s", id, context)
}

func (*capable) DeleteContext(context.Context, string, string) error { return nil }

func (*capable) StartCommand(_ context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	return sdk.Command{
		ID: "c1", Argv: req.Argv, Cwd: req.Cwd, State: sdk.CommandRunning, StartedAt: epoch, Stdin: req.Stdin,
		Terminal: req.Terminal != nil && *req.Terminal == sdk.TerminalSize{Rows: 24, Columns: 80}, StdoutBytes: req.KeepOutput,
	}, nil
}

func (*capable) ListCommands(context.Context, string) ([]sdk.Command, error) {
	return []sdk.Command{{ID: "c1", State: sdk.CommandFailed, ExitCode: 3, StartedAt: epoch, EndedAt: epoch.Add(time.Second)}}, nil
}

func (*capable) ReadCommand(_ context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	for i, text := range []string{"one", "two"} {
		if err := out(sdk.CommandOutput{Stream: sdk.Stdout, Offset: req.StdoutOffset + int64(3*i), Data: []byte(text)}); err != nil {
			return sdk.Command{}, err
		}
	}
	err := out(sdk.CommandOutput{Stream: sdk.Stderr, Offset: req.StderrOffset + 100, Data: []byte("late")})
	return sdk.Command{ID: req.CommandID, State: sdk.CommandSucceeded, StartedAt: epoch}, err
}

func (*capable) WriteCommand(_ context.Context, _, _ string, data []byte, end bool) error {
	if string(data) == "in" && end {
		return nil
	}
	return sdk.Errorf(sdk.CodeConflict, "closed")
}

func (*capable) ResizeCommand(_ context.Context, _, _ string, size sdk.TerminalSize) error {
	if size.Rows != 1<<16-1 {
		return errors.New("not that size")
	}
	return nil
}

func (*capable) SignalCommand(_ context.Context, _, _, signal string) error {
	return sdk.Errorf(sdk.CodeConflict, "%s", signal)
}

func (c *capable) info(path string) sdk.FileInfo {
	return sdk.FileInfo{Path: path, Type: sdk.FileRegular, Size: int64(len(c.files[path])), Mode: 0o640, ModifiedAt: epoch, Target: "t"}
}

func (c *capable) StatFile(_ context.Context, _, path string) (sdk.FileInfo, error) {
	if _, ok := c.files[path]; !ok {
		return sdk.FileInfo{}, sdk.Errorf(sdk.CodeNotFound, "no such file")
	}
	return c.info(path), nil
}

func (c *capable) ListFiles(_ context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (bool, error) {
	for range req.Limit {
		if err := found([]sdk.FileInfo{c.info("/" + req.Glob)}); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (c *capable) ReadFile(_ context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	return c.info(req.Path), io.NopCloser(strings.NewReader(c.files[req.Path][req.Offset:])), nil
}

func (c *capable) WriteFile(_ context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	text, err := io.ReadAll(content)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	if req.Mode != 0o640 || !req.MakeParents {
		return sdk.FileInfo{}, sdk.Errorf(sdk.CodeInvalidRequest, "mode %s", req.Mode)
	}
	c.files[req.Path] = string(text)
	return c.info(req.Path), nil
}

func (c *capable) MakeDirectory(_ context.Context, _, path string, mode fs.FileMode) (sdk.FileInfo, error) {
	return sdk.FileInfo{Path: path, Type: sdk.FileDirectory, Mode: mode, ModifiedAt: epoch}, nil
}

func (*capable) SetFileMode(_ context.Context, id, path string, mode fs.FileMode) (sdk.FileInfo, error) {
	return sdk.FileInfo{Path: path + id, Type: sdk.FileRegular, Mode: mode, ModifiedAt: epoch}, nil
}

func (c *capable) MoveFile(_ context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return c.info(req.From + req.To), nil
}

func (c *capable) CopyFile(_ context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return c.info(req.From + req.To), nil
}

func (c *capable) RemoveFile(_ context.Context, _, path string, recursive bool) error {
	if !recursive {
		return sdk.Errorf(sdk.CodeConflict, "not empty")
	}
	delete(c.files, path)
	return nil
}

func (*capable) SearchFiles(_ context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error) {
	return false, found([]sdk.FileMatch{{Path: req.Path, Line: 1, Column: 2, Text: req.Pattern}})
}

func (*capable) ReplaceInFiles(_ context.Context, req sdk.ReplaceInFilesRequest) ([]sdk.FileReplacement, error) {
	return []sdk.FileReplacement{{Path: req.Paths[0], Count: 2}}, nil
}

func (*capable) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	if err := ready(); err != nil {
		return err
	}
	if err := changed([]sdk.FileChange{{Kind: sdk.FileCreated, Path: req.Path}}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (*capable) ReadArchive(_ context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	if req.Directory == "" {
		return nil, sdk.Errorf(sdk.CodeNotFound, "no such directory")
	}
	return io.NopCloser(strings.NewReader(req.Directory + strings.Join(req.Paths, ","))), nil
}

func (*capable) WriteArchive(_ context.Context, _, _ string, content io.Reader) (sdk.ArchiveSummary, error) {
	n, err := io.Copy(io.Discard, content)
	return sdk.ArchiveSummary{Files: 1, Bytes: n}, err
}

// DialPort answers with an echo, and only on port 7.
func (*capable) DialPort(_ context.Context, _ string, port uint16) (net.Conn, error) {
	if port != 7 {
		return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens on %d", port)
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_, _ = io.Copy(theirs, theirs)
	}()
	return ours, nil
}

func (*capable) Pause(context.Context, string) error { return nil }
func (*capable) PauseReleasing(_ context.Context, id string) (bool, error) {
	return id == "released", nil
}
func (*capable) Resume(context.Context, string) error { return errors.New("stuck") }

func (*capable) SetTTL(_ context.Context, _ string, ttl time.Duration) (time.Time, error) {
	return epoch.Add(ttl), nil
}

func (*capable) InstanceMetrics(context.Context, string) (sdk.InstanceMetrics, error) {
	return sdk.InstanceMetrics{MeasuredAt: epoch, CPUTime: time.Second, CPULimit: 0.5, Memory: 1, MemoryLimit: 2, Disk: 3, DiskLimit: 4, Processes: 5, ProcessLimit: 6}, nil
}

func TestEveryInterfaceIsACapability(t *testing.T) {
	assert.DeepEqual(t, connect(t, newCapable()).Describe().Capabilities, []sdk.Capability{
		"artifacts", "interrupt", "contexts", "commands", "files", "file_search", "file_watch", "file_mode", "archives", "ports", "pause", "pause_releases", "set_ttl", "metrics", "packages", "snapshots", "templates",
	})
	assert.Equal(t, len(connect(t, &scripted{}).Describe().Capabilities), 0)
}

func TestACapabilityThatIsLackingIsNamed(t *testing.T) {
	c := connect(t, &scripted{})
	lacks := func(err error, capability sdk.Capability) {
		t.Helper()
		e, ok := errors.AsType[*sdk.Error](err)
		assert.Assert(t, ok, "%v", err)
		assert.Equal(t, e.Code, sdk.CodeNotSupported)
		assert.Equal(t, e.Capability, capability)
		assert.Equal(t, e.Message, "the provider scripted has no "+string(capability))
	}
	lacks(c.Interrupt(t.Context(), "i", "x"), sdk.CapabilityInterrupt)
	_, err := c.ListContexts(t.Context(), "i")
	lacks(err, sdk.CapabilityContexts)
	_, err = c.StatFile(t.Context(), "i", "/x")
	lacks(err, sdk.CapabilityFiles)
	_, _, err = c.ReadFile(t.Context(), sdk.ReadFileRequest{})
	lacks(err, sdk.CapabilityFiles)
	_, err = c.WriteFile(t.Context(), sdk.WriteFileRequest{}, strings.NewReader("x"))
	lacks(err, sdk.CapabilityFiles)
	_, err = c.DialPort(t.Context(), "i", 7)
	lacks(err, sdk.CapabilityPorts)
	_, err = c.SetFileMode(t.Context(), "i", "/x", 0o600)
	lacks(err, sdk.CapabilityFileMode)
	_, err = c.InstallPackages(t.Context(), sdk.InstallPackagesRequest{Timeout: 1, OutputLimit: 1}, &recorder{})
	lacks(err, sdk.CapabilityPackages)
	lacks(c.CheckPackages(t.Context(), sdk.Python, nil), sdk.CapabilityPackages)
	_, err = c.BuildTemplate(t.Context(), sdk.BuildTemplateRequest{From: "x"}, nil)
	lacks(err, sdk.CapabilityTemplates)
	_, err = c.ListTemplates(t.Context())
	lacks(err, sdk.CapabilityTemplates)
	lacks(c.RemoveTemplate(t.Context(), "x"), sdk.CapabilityTemplates)
	_, err = c.Snapshot(t.Context(), sdk.SnapshotRequest{})
	lacks(err, sdk.CapabilitySnapshots)
	lacks(c.DeleteSnapshot(t.Context(), "s"), sdk.CapabilitySnapshots)
	_, err = c.ListSnapshots(t.Context())
	lacks(err, sdk.CapabilitySnapshots)
	_, err = c.Create(t.Context(), sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: "s", Key: make([]byte, sdk.SnapshotKeyBytes)}})
	lacks(err, sdk.CapabilitySnapshots)
	lacks(c.WatchFiles(t.Context(), sdk.WatchFilesRequest{}, nil, nil), sdk.CapabilityFileWatch)
}

func TestContextsAndCommandsCrossTheWire(t *testing.T) {
	c := connect(t, newCapable())
	ctx := t.Context()
	made, err := c.CreateContext(ctx, sdk.CreateContextRequest{InstanceID: "i", Language: sdk.Python, Cwd: "/w", Env: map[string]string{"A": "b"}})
	assert.NilError(t, err)
	assert.DeepEqual(t, made, sdk.CodeContext{ID: "i-b", Language: sdk.Python, Cwd: "/w", CreatedAt: epoch, Busy: true})
	list, err := c.ListContexts(ctx, "i")
	assert.NilError(t, err)
	assert.Equal(t, len(list), 1)
	assert.Error(t, c.RestartContext(ctx, "i", "x"), "SB013: i x")
	assert.NilError(t, c.DeleteContext(ctx, "i", "x"))

	started, err := c.StartCommand(ctx, sdk.CommandRequest{
		Argv: []string{"sh", "-c", "x"}, Cwd: "/w", Stdin: true, Terminal: &sdk.TerminalSize{Rows: 24, Columns: 80}, KeepOutput: 9,
	})
	assert.NilError(t, err)
	assert.DeepEqual(t, started, sdk.Command{
		ID: "c1", Argv: []string{"sh", "-c", "x"}, Cwd: "/w", State: sdk.CommandRunning, StartedAt: epoch, Stdin: true, Terminal: true, StdoutBytes: 9,
	})
	_, err = c.StartCommand(ctx, sdk.CommandRequest{})
	assert.Error(t, err, "SB010: argv: must name a program")
	commands, err := c.ListCommands(ctx, "i")
	assert.NilError(t, err)
	assert.Equal(t, commands[0].EndedAt.Sub(commands[0].StartedAt), time.Second)

	var heard []string
	ended, err := c.ReadCommand(ctx, sdk.ReadCommandRequest{CommandID: "c9", StdoutOffset: 10, Follow: true}, func(o sdk.CommandOutput) error {
		heard = append(heard, string(o.Stream)+string(o.Data))
		return nil
	})
	assert.NilError(t, err)
	assert.DeepEqual(t, heard, []string{"stdoutone", "stdouttwo", "stderrlate"})
	assert.Equal(t, ended.ID, "c9")
	full := errors.New("full")
	_, err = c.ReadCommand(ctx, sdk.ReadCommandRequest{CommandID: "c9"}, func(sdk.CommandOutput) error { return full })
	assert.ErrorIs(t, err, full)
	assert.NilError(t, c.WriteCommand(ctx, "i", "c", []byte("in"), true))
	assert.Error(t, c.WriteCommand(ctx, "i", "c", []byte("in"), false), "SB014: closed")
	assert.NilError(t, c.ResizeCommand(ctx, "i", "c", sdk.TerminalSize{Rows: 1<<16 - 1}))
	assert.Error(t, c.SignalCommand(ctx, "i", "c", "SIGHUP"), "SB014: SIGHUP")
}

func TestFilesCrossTheWire(t *testing.T) {
	provider := newCapable()
	c := connect(t, provider)
	ctx := t.Context()
	large := strings.Repeat("0123456789abcdef", 50_000)
	info, err := c.WriteFile(ctx, sdk.WriteFileRequest{Path: "/f", Mode: 0o640, MakeParents: true}, iotest.HalfReader(strings.NewReader(large)))
	assert.NilError(t, err)
	assert.DeepEqual(t, info, sdk.FileInfo{Path: "/f", Type: sdk.FileRegular, Size: int64(len(large)), Mode: 0o640, ModifiedAt: epoch, Target: "t"})
	info, content, err := c.ReadFile(ctx, sdk.ReadFileRequest{Path: "/f", Offset: 1})
	assert.NilError(t, err)
	assert.Equal(t, info.Size, int64(len(large)))
	read, err := io.ReadAll(content)
	assert.NilError(t, err)
	assert.Assert(t, string(read) == large[1:])
	assert.NilError(t, content.Close())

	broken := errors.New("the caller went away")
	_, err = c.WriteFile(ctx, sdk.WriteFileRequest{Path: "/g", Mode: 0o640, MakeParents: true}, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	assert.ErrorIs(t, err, broken)
	_, err = c.StatFile(ctx, "i", "/g")
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound}, "half a file is no file")
	_, err = c.WriteFile(ctx, sdk.WriteFileRequest{Path: "/g"}, bytes.NewReader(make([]byte, 4<<20)))
	assert.Error(t, err, "SB010: mode ----------")

	var listed int
	truncated, err := c.ListFiles(ctx, sdk.ListFilesRequest{Glob: "*.py", Limit: 3}, func(files []sdk.FileInfo) error {
		listed += len(files)
		assert.Equal(t, files[0].Path, "/*.py")
		return nil
	})
	assert.NilError(t, err)
	assert.Assert(t, truncated)
	assert.Equal(t, listed, 3)
	dir, err := c.MakeDirectory(ctx, "i", "/d", 0o700)
	assert.NilError(t, err)
	assert.Equal(t, dir.Mode, fs.FileMode(0o700))
	for _, mode := range []fs.FileMode{0, 0o751} {
		changed, err := c.SetFileMode(ctx, "i", "/f", mode|fs.ModeSetuid)
		assert.NilError(t, err)
		assert.Equal(t, changed.Path, "/fi")
		assert.Equal(t, changed.Mode, mode)
	}
	for _, move := range []func(context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error){c.MoveFile, c.CopyFile} {
		moved, err := move(ctx, sdk.MoveFileRequest{From: "/a", To: "/b", Overwrite: true})
		assert.NilError(t, err)
		assert.Equal(t, moved.Path, "/a/b")
	}
	assert.Error(t, c.RemoveFile(ctx, "i", "/f", false), "SB014: not empty")
	assert.NilError(t, c.RemoveFile(ctx, "i", "/f", true))
}

func TestFileToolsCrossTheWire(t *testing.T) {
	c := connect(t, newCapable())
	ctx := t.Context()
	var matches []sdk.FileMatch
	_, err := c.SearchFiles(ctx, sdk.SearchFilesRequest{Path: "/f", Pattern: "a+", Limit: 5}, func(m []sdk.FileMatch) error {
		matches = append(matches, m...)
		return nil
	})
	assert.NilError(t, err)
	assert.DeepEqual(t, matches, []sdk.FileMatch{{Path: "/f", Line: 1, Column: 2, Text: "a+"}})
	replaced, err := c.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{Paths: []string{"/f"}, Old: "a", New: "b"})
	assert.NilError(t, err)
	assert.DeepEqual(t, replaced, []sdk.FileReplacement{{Path: "/f", Count: 2}})
	_, err = c.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{})
	assert.Error(t, err, "SB010: old: must not be empty")

	watching, stop := context.WithCancel(ctx)
	ready := false
	err = c.WatchFiles(watching, sdk.WatchFilesRequest{Path: "/d"}, func() error { ready = true; return nil }, func(changes []sdk.FileChange) error {
		assert.Check(t, ready)
		assert.DeepEqual(t, changes, []sdk.FileChange{{Kind: sdk.FileCreated, Path: "/d"}})
		stop()
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)

	archive, err := c.ReadArchive(ctx, sdk.ReadArchiveRequest{Directory: "/d", Paths: []string{"a", "b"}})
	assert.NilError(t, err)
	content, err := io.ReadAll(archive)
	assert.NilError(t, err)
	assert.Equal(t, string(content), "/da,b")
	assert.NilError(t, archive.Close())
	_, err = c.ReadArchive(ctx, sdk.ReadArchiveRequest{})
	assert.Error(t, err, "SB013: no such directory")
	summary, err := c.WriteArchive(ctx, "i", "/d", strings.NewReader("12345"))
	assert.NilError(t, err)
	assert.DeepEqual(t, summary, sdk.ArchiveSummary{Files: 1, Bytes: 5})
}

func TestAConnectionCrossesTheWire(t *testing.T) {
	c := connect(t, newCapable())
	dialling, cancel := context.WithCancel(t.Context())
	conn, err := c.DialPort(dialling, "i", 7)
	assert.NilError(t, err)
	cancel() // bounds the dialling, not the connection
	go func() { _, _ = conn.Write([]byte("hello")) }()
	answer := make([]byte, 5)
	_, err = io.ReadFull(conn, answer)
	assert.NilError(t, err)
	assert.Equal(t, string(answer), "hello")
	assert.NilError(t, conn.SetReadDeadline(time.Now()))
	_, err = conn.Read(answer)
	var timeout net.Error
	assert.Assert(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
	assert.NilError(t, conn.Close())

	_, err = c.DialPort(t.Context(), "i", 8)
	assert.Error(t, err, "SB003: nothing listens on 8")
	_, err = c.DialPort(t.Context(), "i", 0)
	assert.Error(t, err, "SB010: port: must be from 1 to 65535")
	_, err = c.DialPort(dialling, "i", 7)
	assert.ErrorIs(t, err, context.Canceled)
}

func TestLifecycleCrossesTheWire(t *testing.T) {
	c := connect(t, newCapable())
	ctx := t.Context()
	assert.NilError(t, c.Pause(ctx, "i"))
	for _, id := range []string{"released", "frozen"} {
		released, err := c.PauseReleasing(ctx, id)
		assert.NilError(t, err)
		assert.Equal(t, released, id == "released")
	}
	assert.Error(t, c.Resume(ctx, "i"), "SB000: stuck")
	expires, err := c.SetTTL(ctx, "i", time.Hour)
	assert.NilError(t, err)
	assert.Equal(t, expires, epoch.Add(time.Hour))
	metrics, err := c.InstanceMetrics(ctx, "i")
	assert.NilError(t, err)
	assert.DeepEqual(t, metrics, sdk.InstanceMetrics{MeasuredAt: epoch, CPUTime: time.Second, CPULimit: 0.5, Memory: 1, MemoryLimit: 2, Disk: 3, DiskLimit: 4, Processes: 5, ProcessLimit: 6})
}

func TestArtifactsAreBounded(t *testing.T) {
	provider := &scripted{execute: func(_ context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		for _, data := range []string{"small", "much too large", "one too many", "and another"} {
			if err := out.Artifact(sdk.Artifact{Kind: sdk.ArtifactFile, Name: req.InstanceID, MIMEType: "text/plain", Data: []byte(data), Group: 1}); err != nil {
				return sdk.ExecuteResult{}, err
			}
		}
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}}
	c := connect(t, provider)
	var out recorder
	req := sdk.ExecuteRequest{Timeout: 1, OutputLimit: 1, InstanceID: "k", Artifacts: &sdk.ArtifactLimits{MaxCount: 2, MaxBytes: 5, MaxTotalBytes: 9}}
	_, err := c.Execute(t.Context(), req, &out)
	assert.NilError(t, err)
	assert.DeepEqual(t, out.artifacts, []sdk.Artifact{
		{Kind: sdk.ArtifactFile, Name: "k", MIMEType: "text/plain", Data: []byte("small"), Size: 5, Group: 1},
		{Kind: sdk.ArtifactFile, Name: "k", MIMEType: "text/plain", Size: 14, Group: 1, Refused: "larger than 5 bytes"},
		{Kind: sdk.ArtifactFile, Group: 1, Refused: "more than 2 artifacts: the rest is left out"},
	})
	out = recorder{}
	req.Artifacts = nil
	_, err = c.Execute(t.Context(), req, &out)
	assert.NilError(t, err)
	assert.Equal(t, len(out.artifacts), 0, "nobody asked")
}

// liar serves capabilities without the SDK's help.
type liar struct {
	providerv1.UnimplementedProviderServiceServer
	providerv1.UnimplementedFileServiceServer
	providerv1.UnimplementedCommandServiceServer
	files  []*providerv1.FileInfo
	output []*providerv1.ReadCommandResponse
}

func (*liar) Describe(context.Context, *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	return &providerv1.DescribeResponse{Name: "liar"}, nil
}

func (l *liar) ListFiles(_ *providerv1.ListFilesRequest, stream grpc.ServerStreamingServer[providerv1.ListFilesResponse]) error {
	return stream.Send(&providerv1.ListFilesResponse{Files: l.files})
}

func (l *liar) ReadCommand(_ *providerv1.ReadCommandRequest, stream grpc.ServerStreamingServer[providerv1.ReadCommandResponse]) error {
	for _, m := range l.output {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func TestACapabilityIsNotTrusted(t *testing.T) {
	output := func(stream string, offset int64) *providerv1.ReadCommandResponse {
		return &providerv1.ReadCommandResponse{Event: &providerv1.ReadCommandResponse_Output{Output: &providerv1.CommandOutput{Stream: stream, Offset: offset, Data: []byte("abc")}}}
	}
	for name, c := range map[string]struct {
		files  []*providerv1.FileInfo
		output []*providerv1.ReadCommandResponse
		want   string
	}{
		"a relative path":     {files: []*providerv1.FileInfo{{Path: "x"}}, want: "SB000: the plugin answered a path that is not acceptable"},
		"more than asked for": {files: []*providerv1.FileInfo{{Path: "/a"}, {Path: "/b"}, {Path: "/c"}}, want: "SB000: the plugin listed more than the limit"},
		"output out of order": {output: []*providerv1.ReadCommandResponse{output("stdout", 0), output("stdout", 1)}, want: "SB000: the plugin sent a command's output out of order"},
		"an unknown stream":   {output: []*providerv1.ReadCommandResponse{output("stdlog", 0)}, want: "SB000: the plugin sent a command's output out of order"},
		"too much output at once": {output: []*providerv1.ReadCommandResponse{{Event: &providerv1.ReadCommandResponse_Output{Output: &providerv1.CommandOutput{
			Stream: "stdout", Data: make([]byte, sdk.MaxOutputChunk+1),
		}}}}, want: "SB000: the plugin sent too much of a command's output at once"},
		"endless arguments": {output: []*providerv1.ReadCommandResponse{{Event: &providerv1.ReadCommandResponse_Command{Command: &providerv1.Command{
			Id: "c", State: "running", Argv: []string{strings.Repeat("x", 1<<20)},
		}}}}, want: "SB000: the plugin described a command unacceptably"},
		"output without its end": {output: []*providerv1.ReadCommandResponse{output("stdout", 0)}, want: "SB000: the plugin ended a command's output without the command"},
		"an unknown state": {output: []*providerv1.ReadCommandResponse{{Event: &providerv1.ReadCommandResponse_Command{Command: &providerv1.Command{
			Id: "c", State: "asleep", StartedAt: timestamppb.New(epoch),
		}}}}, want: `SB000: the plugin answered the unknown state "asleep" of a command`},
	} {
		t.Run(name, func(t *testing.T) {
			l := &liar{files: c.files, output: c.output}
			client, err := wire.NewClient(t.Context(), dial(t, func(s *grpc.Server) {
				providerv1.RegisterProviderServiceServer(s, l)
				providerv1.RegisterFileServiceServer(s, l)
				providerv1.RegisterCommandServiceServer(s, l)
			}))
			assert.NilError(t, err)
			if c.files != nil {
				_, err = client.ListFiles(t.Context(), sdk.ListFilesRequest{Limit: 2}, func([]sdk.FileInfo) error { return nil })
			} else {
				_, err = client.ReadCommand(t.Context(), sdk.ReadCommandRequest{}, func(sdk.CommandOutput) error { return nil })
			}
			assert.Error(t, err, c.want)
		})
	}
}
