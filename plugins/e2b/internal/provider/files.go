package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Files = (*Provider)(nil)

const (
	// maxListed bounds what a list looks at.
	maxListed = 50_000
	// readAtOnce is how much of a file comes with its description, in bytes.
	readAtOnce = 64 << 10
)

// fileProgram takes its request from the environment, where there is room for long paths.
var fileProgram = guestfiles.Program(`print(json.dumps(answer(json.loads(os.environ["SANDBOX_REQUEST"]))))`)

// files makes an operation in a sandbox.
func (p *Provider) files(ctx context.Context, instanceID string, req guestfiles.Request) (guestfiles.Answer, error) {
	if err := req.Check(); err != nil {
		return guestfiles.Answer{}, err
	}
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return guestfiles.Answer{}, err
	}
	req.Workspace = workspace
	request, err := json.Marshal(req)
	if err != nil {
		return guestfiles.Answer{}, fmt.Errorf("encode a request: %w", err)
	}
	text, exit, err := p.script(ctx, sb, envd.Program{
		Cmd: "python3", Args: []string{"-I", "-c", fileProgram}, Cwd: "/", Envs: map[string]string{"SANDBOX_REQUEST": string(request)},
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
	return path.Join(workspace, name)
}

// ReadFile implements sdk.Files. A small part comes with the description.
func (p *Provider) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
	answer, err := p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Open, Path: req.Path, Offset: req.Offset, Length: req.Length, Most: readAtOnce})
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	info := answer.File.Info()
	if answer.Whole {
		return info, io.NopCloser(bytes.NewReader(answer.Data)), nil
	}
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.FileInfo{}, nil, err
	}
	var content io.ReadCloser
	err = p.envd(ctx, sb, func(c *envd.Client) (err error) {
		content, err = c.Download(ctx, answer.Real, answer.Offset, req.Length)
		return err
	})
	if err != nil {
		return sdk.FileInfo{}, nil, p.explain(ctx, sb, err)
	}
	return info, content, nil
}

const (
	// draftTimeout bounds the making of a draft.
	draftTimeout = 30 * time.Second
	draftPrefix  = ".draft-"
)

// WriteFile implements sdk.Files. The content goes into a draft beside the file, which
// takes its place at the end.
func (p *Provider) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
	name := absolute(req.Path)
	draft := path.Join(path.Dir(name), draftPrefix+randomName())
	// Once begun it is waited for, so that nothing is made behind the back of what
	// tidies up.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), draftTimeout)
	defer cancel()
	made, err := p.files(making, req.InstanceID, guestfiles.Request{Op: guestfiles.Draft, Path: req.Path, Draft: draft, Parents: req.MakeParents})
	if err != nil {
		return sdk.FileInfo{}, err
	}
	info, err := p.fill(ctx, req, draft, cmp.Or(req.Mode.Perm(), made.Mode, 0o644), content)
	if err == nil {
		return info, nil
	}
	// The context may be what has ended.
	tidying, done := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer done()
	if _, discarded := p.files(tidying, req.InstanceID, guestfiles.Request{Op: guestfiles.Discard, Path: req.Path, Draft: draft}); discarded != nil {
		p.logger.Warn("half a file may be left in a sandbox", "error", discarded)
	}
	return sdk.FileInfo{}, err
}

// fill puts content into a draft and gives it its name.
func (p *Provider) fill(ctx context.Context, req sdk.WriteFileRequest, draft string, mode fs.FileMode, content io.Reader) (sdk.FileInfo, error) {
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.FileInfo{}, err
	}
	source := &watchedReader{Reader: content}
	// Not through p.envd: content can be read once.
	err = p.envdOf(sb).Upload(ctx, draft, source)
	switch {
	case source.err != nil:
		return sdk.FileInfo{}, source.err
	case err != nil:
		return sdk.FileInfo{}, p.explain(ctx, sb, err)
	}
	done, err := p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Commit, Path: req.Path, Draft: draft, Mode: mode})
	return done.File.Info(), err
}

// watchedReader remembers what went wrong on the reading side.
type watchedReader struct {
	io.Reader
	err error
}

func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
