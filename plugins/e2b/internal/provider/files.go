package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// maxListed bounds what a list looks at.
	maxListed = 50_000
	// readAtOnce is how much of a file comes with its description, in bytes.
	readAtOnce = 64 << 10
)

// longestRequest is the most bytes of a request in the environment, where Linux has 128 KiB
// for each variable.
const longestRequest = 100 << 10

// fileProgram takes its request from the environment, where there is room for long paths, or
// from the file that is named there.
var fileProgram = guestfiles.Program(`request = os.environ["SANDBOX_REQUEST"]
if request.startswith("/"):
    with open(request, "rb") as f:
        op_discard({"draft": request})
        request = f.read()
print(json.dumps(answer(json.loads(request))))`)

// store is a guestfiles.Store.
type store struct{ p *Provider }

// Do implements guestfiles.Store.
func (s store) Do(ctx context.Context, instanceID string, req guestfiles.Request) (guestfiles.Answer, error) {
	if err := req.Check(); err != nil {
		return guestfiles.Answer{}, err
	}
	sb, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return guestfiles.Answer{}, err
	}
	req.Workspace = remote.Workspace
	request, err := json.Marshal(req)
	if err != nil {
		return guestfiles.Answer{}, fmt.Errorf("encode a request: %w", err)
	}
	if len(request) > longestRequest {
		file := "/tmp/.sandbox-broker-" + remote.NewName()
		if err := sb.tell(ctx, func(c *envd.Client) error { return c.Upload(ctx, file, bytes.NewReader(request)) }); err != nil {
			return guestfiles.Answer{}, sb.explain(ctx, err)
		}
		request = []byte(file)
	}
	text, exit, err := sb.script(ctx, stream.Program{
		Argv: []string{"python3", "-I", "-c", fileProgram}, Env: map[string]string{"SANDBOX_REQUEST": string(request)},
	})
	if err != nil {
		return guestfiles.Answer{}, err
	}
	var answer guestfiles.Answer
	if err := json.Unmarshal(text, &answer); err != nil || exit != 0 {
		return answer, sdk.Errorf(sdk.CodeUnavailable, "the sandbox could not look at its files (exit code %d); it needs python3", exit)
	}
	return answer, answer.Refusal()
}

// absolute is a path as the sandbox resolves it.
func absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(remote.Workspace, name)
}

// Open implements guestfiles.Store.
func (s store) Open(ctx context.Context, instanceID, name string, offset, length int64) (io.ReadCloser, error) {
	sb, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	content, err := ask(ctx, sb, func(c *envd.Client) (io.ReadCloser, error) { return c.Download(ctx, name, offset, length) })
	return content, sb.explain(ctx, err)
}

// Fill implements guestfiles.Store.
func (s store) Fill(ctx context.Context, instanceID string, req guestfiles.Request, content io.Reader) error {
	sb, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return err
	}
	source := &watchedReader{Reader: content}
	// Not through p.envd: content can be read once.
	err = sb.envdOf().Upload(ctx, absolute(req.Draft), source)
	if failed := source.failed.Load(); failed != nil {
		return *failed
	}
	return sb.explain(ctx, err)
}

// watchedReader remembers what went wrong on the reading side. net/http may read on for a
// moment when a request has ended early.
type watchedReader struct {
	io.Reader
	failed atomic.Pointer[error]
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed.Store(&err)
	}
	return n, err
}

var _ sdk.FileWatcher = (*Provider)(nil)

// WatchFiles implements sdk.FileWatcher. It is envd that watches, as root; so the user
// is asked first.
func (p *Provider) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	if _, err := (store{p}).Do(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.List, Path: req.Path, Depth: 1, Most: 1}); err != nil {
		return err
	}
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(sb.gone, stop)()
	root, standstills := absolute(req.Path), sb.standstillCount()
	w, err := ask(watching, sb, func(c *envd.Client) (*envd.Watcher, error) { return c.Watch(watching, root, req.Recursive) })
	if err != nil {
		return sb.watchFailed(ctx, err, standstills)
	}
	defer w.Close()
	if err := ready(); err != nil {
		return err
	}
	for {
		change, err := w.Next()
		if err != nil {
			return sb.watchFailed(ctx, err, standstills)
		}
		kind, known := changeKinds[change.Kind]
		if !known || strings.HasPrefix(path.Base(change.Name), guestfiles.DraftPrefix) {
			continue
		}
		if err := changed([]sdk.FileChange{{Kind: kind, Path: path.Join(root, change.Name)}}); err != nil {
			return err
		}
	}
}

var changeKinds = map[envd.ChangeKind]sdk.FileChangeKind{
	envd.ChangeCreate: sdk.FileCreated, envd.ChangeWrite: sdk.FileModified, envd.ChangeChmod: sdk.FileModified,
	envd.ChangeRemove: sdk.FileRemoved, envd.ChangeRename: sdk.FileRenamed,
}

// watchFailed returns the error with which a watch ends. The watch began after the given number
// of standstills: a pause since then breaks its stream, and the sandbox may already run again.
func (sb *sandbox) watchFailed(ctx context.Context, err error, standstills int) error {
	switch connectCode(err) {
	case "not_found":
		return sdk.FieldErrorf(sdk.CodeNotFound, "path", "there is no such directory")
	case "invalid_argument":
		return sdk.FieldErrorf(sdk.CodeConflict, "path", "is not a directory that can be watched")
	}
	explained := sb.explain(ctx, err)
	if isLost(err) && sdk.CodeOf(explained) == sdk.CodeConnectionFailed && sb.standstillCount() != standstills {
		return sdk.Errorf(sdk.CodeConflict, "the instance was paused, which ended the watch; watch again")
	}
	return explained
}
