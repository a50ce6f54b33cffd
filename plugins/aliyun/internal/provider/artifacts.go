package provider

import (
	"cmp"
	"context"
	"io"
	"maps"
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

// isPattern tells patterns from names.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// plain are the names among what was asked for.
func plain(asked []string) []string {
	return slices.DeleteFunc(slices.Clone(asked), isPattern)
}

// withMatches puts the files that patterns stand for behind those that were asked for by
// name, before what was made. A pattern that matches nothing is as a file that is not
// there.
func (p *Provider) withMatches(ctx context.Context, box sandbox, files []guest.File, limits *sdk.ArtifactLimits) ([]guest.File, error) {
	if limits == nil || !slices.ContainsFunc(limits.Files, isPattern) {
		return files, nil
	}
	list, err := p.files(ctx, box.ID, guestfiles.Request{Op: guestfiles.List, Path: workspace, Depth: maxDepth, Most: maxListed})
	if err != nil {
		return nil, err
	}
	var found []guest.File
	for _, asked := range limits.Files {
		if !isPattern(asked) {
			continue
		}
		pattern, err := glob.Compile(strings.TrimPrefix(asked, workspace+"/"))
		before := len(found)
		for _, f := range list.Files {
			if err == nil && f.Type == string(sdk.FileRegular) && pattern.Match(f.Below) {
				found = append(found, guest.File{Name: f.Below, Size: f.Size})
			}
		}
		if len(found) == before {
			found = append(found, guest.File{Name: asked, Size: -1})
		}
	}
	named := min(len(plain(limits.Files)), len(files))
	var all []guest.File
	for _, f := range slices.Concat(files[:named], found, files[named:]) {
		if !slices.ContainsFunc(all, func(g guest.File) bool { return g.Name == f.Name }) {
			all = append(all, f)
		}
	}
	return all[:min(len(all), limits.MaxCount+1)], nil
}

// maxDepth is how deep patterns look.
const maxDepth = 32

// wanted is what the sandbox is to look for.
func wanted(limits *sdk.ArtifactLimits) *guest.Artifacts {
	if limits == nil {
		return nil
	}
	return &guest.Artifacts{Files: append([]string{}, plain(limits.Files)...), Most: limits.MaxCount}
}

// sendFiles passes on the files that an execution has made.
func (p *Provider) sendFiles(ctx context.Context, box sandbox, files []guest.File, limits *sdk.ArtifactLimits, out sdk.Output) error {
	if limits == nil {
		return nil
	}
	left := limits.MaxTotalBytes
	for i, f := range files {
		a := sdk.Artifact{Kind: sdk.ArtifactFile, Name: f.Name, Size: max(f.Size, 0), Group: i + 1}
		a.MIMEType = cmp.Or(mime.TypeByExtension(path.Ext(f.Name)), "application/octet-stream")
		switch {
		case i >= limits.MaxCount: // the SDK says so
		case f.Size < 0:
			a.Refused = "there is no such regular file"
		case f.Size > limits.MaxBytes:
			a.Refused = "the file is too large; it can be read as a file"
		case f.Size > left:
			a.Refused = "the file is too large beside the artifacts before it; it can be read as a file"
		default:
			data, err := p.fetch(ctx, box, f)
			if err != nil && sdk.CodeOf(err) != sdk.CodeNotFound {
				return err
			}
			if err != nil {
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

// fetch reads a file.
func (p *Provider) fetch(ctx context.Context, box sandbox, f guest.File) ([]byte, error) {
	_, content, err := p.ReadFile(ctx, sdk.ReadFileRequest{InstanceID: box.ID, Path: path.Join(box.Workspace, f.Name)})
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return io.ReadAll(io.LimitReader(content, f.Size))
}

// marks are the files below artifacts/ as they are now, and the sizes of these.
func (p *Provider) marks(ctx context.Context, box sandbox, names []string) (map[string]string, []int64, error) {
	var sizes []int64
	found, err := ask(ctx, func(ctx context.Context) (found map[string]string, err error) {
		found, sizes, err = guest.Marks(ctx, box, box.Workspace, names)
		return found, err
	})
	return found, sizes, p.explain(ctx, err, sdk.CodeUnavailable, "look for artifacts")
}

// sendNewFiles passes on what is there after an execution in a context and was not
// before, and the files that were asked for.
func (p *Provider) sendNewFiles(ctx context.Context, box sandbox, before map[string]string, limits *sdk.ArtifactLimits, out sdk.Output) error {
	if limits == nil {
		return nil
	}
	after, _, err := p.marks(ctx, box, nil)
	if err != nil {
		return err
	}
	names := plain(limits.Files)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if after[name] != before[name] && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	files := make([]guest.File, len(names))
	if len(names) > 0 {
		_, sizes, err := p.marks(ctx, box, names)
		if err != nil {
			return err
		}
		for i, name := range names {
			files[i] = guest.File{Name: name, Size: sizes[i]}
		}
	}
	if files, err = p.withMatches(ctx, box, files, limits); err != nil {
		return err
	}
	return p.sendFiles(ctx, box, files, limits, out)
}
