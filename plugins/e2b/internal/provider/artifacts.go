package provider

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/supervisor"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

// wanted is what the supervisor is to look for.
func wanted(limits *sdk.ArtifactLimits) *supervisor.Artifacts {
	if limits == nil {
		return nil
	}
	files := []string{}
	for _, name := range limits.Files {
		if !isPattern(name) {
			files = append(files, name)
		}
	}
	return &supervisor.Artifacts{Files: files, Most: limits.MaxCount}
}

// isPattern says that a name stands for any number of files.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// withPatterns puts before what was found all that patterns stand for: regular files below
// the workspace, in the order of their names.
func (p *Provider) withPatterns(ctx context.Context, instanceID string, limits *sdk.ArtifactLimits, found []supervisor.File) ([]supervisor.File, error) {
	if limits == nil || !slices.ContainsFunc(limits.Files, isPattern) {
		return found, nil
	}
	answer, err := p.files(ctx, instanceID, guestfiles.Request{Op: guestfiles.List, Path: workspace, Depth: 256, Most: maxListed})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(answer.Files, func(a, b guestfiles.File) int { return strings.Compare(a.Path, b.Path) })
	var all []supervisor.File
	add := func(f supervisor.File) {
		if !slices.ContainsFunc(all, func(other supervisor.File) bool { return other.Name == f.Name }) {
			all = append(all, f)
		}
	}
	for _, pattern := range limits.Files {
		if !isPattern(pattern) {
			continue
		}
		matches, err := glob.Compile(strings.TrimPrefix(path.Clean(pattern), workspace+"/"))
		some := false
		for _, f := range answer.Files {
			name := strings.TrimPrefix(f.Path, workspace+"/")
			if err == nil && f.Type == string(sdk.FileRegular) && matches.Match(name) && len(all) <= limits.MaxCount {
				add(supervisor.File{Name: name, Size: f.Size})
				some = true
			}
		}
		if !some {
			add(supervisor.File{Name: pattern, Size: -1})
		}
	}
	for _, f := range found {
		add(f)
	}
	return all, nil
}

// sendFiles passes on the files that an execution has made.
func (p *Provider) sendFiles(ctx context.Context, sb *sandbox, files []supervisor.File, limits *sdk.ArtifactLimits, out sdk.Output) error {
	if limits == nil {
		return nil
	}
	left := limits.MaxTotalBytes
	for i, f := range files {
		a := sdk.Artifact{Kind: sdk.ArtifactFile, Name: f.Name, Size: max(f.Size, 0), Group: i + 1}
		a.MIMEType = cmp.Or(mime.TypeByExtension(path.Ext(f.Name)), "application/octet-stream")
		switch {
		case i >= limits.MaxCount: // the SDK says so
		case f.Size < 0 && isPattern(f.Name):
			a.Refused = "matches no file"
		case f.Size < 0:
			a.Refused = "there is no such regular file"
		case f.Size > limits.MaxBytes:
			a.Refused = "the file is too large; it can be read as a file"
		case f.Size > left:
			a.Refused = "the file is too large beside the artifacts before it; it can be read as a file"
		default:
			data, err := p.fetch(ctx, sb, path.Join(workspace, f.Name), f.Size)
			if err != nil {
				if statusOf(err) != http.StatusNotFound {
					return p.explain(ctx, sb, err)
				}
				a.Refused = "the file is gone"
			}
			a.Data = data
			left -= int64(len(data))
		}
		if err := out.Artifact(a); err != nil {
			return err
		}
	}
	return nil
}

// fetch reads the beginning of a file, up to a size.
func (p *Provider) fetch(ctx context.Context, sb *sandbox, name string, size int64) ([]byte, error) {
	var content io.ReadCloser
	err := p.envd(ctx, sb, func(c *envd.Client) (err error) {
		content, err = c.Download(ctx, name, 0, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(content, size))
	return data, errors.Join(err, content.Close())
}

// artifactFiles are the files below artifacts/ as they are before an execution.
func (p *Provider) artifactFiles(ctx context.Context, req sdk.ExecuteRequest) (map[string]guestfiles.File, error) {
	if req.Artifacts == nil {
		return nil, nil
	}
	answer, err := p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.List, Path: artifactDir, Depth: 256, Most: maxListed})
	if code := sdk.CodeOf(err); code == sdk.CodeNotFound || code == sdk.CodeConflict { // there is no such directory
		if _, gone := p.lookup(ctx, req.InstanceID); gone != nil {
			return nil, gone
		}
		return map[string]guestfiles.File{}, nil
	}
	found := map[string]guestfiles.File{}
	for _, f := range answer.Files {
		if f.Type == string(sdk.FileRegular) {
			found[f.Path] = f
		}
	}
	return found, err
}

const artifactDir = "artifacts"

// sendNewFiles passes on what is there after an execution in a context and was not
// before, and the files that were asked for.
func (p *Provider) sendNewFiles(ctx context.Context, sb *sandbox, before map[string]guestfiles.File, req sdk.ExecuteRequest, out sdk.Output) error {
	if req.Artifacts == nil {
		return nil
	}
	var files []supervisor.File
	for _, name := range wanted(req.Artifacts).Files {
		f := supervisor.File{Name: name, Size: -1}
		if answer, err := p.files(ctx, req.InstanceID, guestfiles.Request{Op: guestfiles.Stat, Path: name}); err == nil && answer.File.Type == string(sdk.FileRegular) {
			f.Size = answer.File.Size
		}
		files = append(files, f)
	}
	after, err := p.artifactFiles(ctx, req)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		relative := strings.TrimPrefix(name, workspace+"/")
		if after[name] != before[name] && !slices.Contains(req.Artifacts.Files, relative) {
			files = append(files, supervisor.File{Name: relative, Size: after[name].Size})
		}
	}
	files, err = p.withPatterns(ctx, req.InstanceID, req.Artifacts, files)
	if err != nil {
		return err
	}
	return p.sendFiles(ctx, sb, files, req.Artifacts, out)
}
