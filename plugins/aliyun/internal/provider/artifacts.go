package provider

import (
	"cmp"
	"context"
	"io"
	"maps"
	"mime"
	"path"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// wanted is what the sandbox is to look for.
func wanted(limits *sdk.ArtifactLimits) *guest.Artifacts {
	if limits == nil {
		return nil
	}
	return &guest.Artifacts{Files: append([]string{}, limits.Files...), Most: limits.MaxCount}
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

// marks are the files below artifacts/ as they are now.
func (p *Provider) marks(ctx context.Context, box sandbox, limits *sdk.ArtifactLimits) (map[string]string, []int64, error) {
	if limits == nil {
		return nil, nil, nil
	}
	var sizes []int64
	found, err := ask(ctx, func(ctx context.Context) (found map[string]string, err error) {
		found, sizes, err = guest.Marks(ctx, box, box.Workspace, limits.Files)
		return found, err
	})
	return found, sizes, err
}

// sendNewFiles passes on what is there after an execution in a context and was not
// before, and the files that were asked for.
func (p *Provider) sendNewFiles(ctx context.Context, box sandbox, before map[string]string, limits *sdk.ArtifactLimits, out sdk.Output) error {
	if limits == nil {
		return nil
	}
	after, _, err := p.marks(ctx, box, limits)
	if err != nil {
		return p.explain(ctx, err, sdk.CodeUnavailable, "look for artifacts")
	}
	names := slices.Clone(limits.Files)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if after[name] != before[name] && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	asked := *limits
	asked.Files = names
	_, sizes, err := p.marks(ctx, box, &asked)
	if err != nil {
		return p.explain(ctx, err, sdk.CodeUnavailable, "look for artifacts")
	}
	files := make([]guest.File, len(names))
	for i, name := range names {
		files[i] = guest.File{Name: name, Size: sizes[i]}
	}
	return p.sendFiles(ctx, box, files, limits, out)
}
