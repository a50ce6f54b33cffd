// Package artifacts passes on the files that an execution in a remote sandbox has made
// below artifacts/, and those that were asked for. The supervisor of a process finds them
// itself (package supervise); after code in a kernel they are looked for.
package artifacts

import (
	"cmp"
	"context"
	"io"
	"mime"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

// maxDepth is how deep patterns look.
const maxDepth = 256

// Finder finds the artifacts of one sandbox.
type Finder struct {
	Store    guestfiles.Store
	Instance string
	// Most is at how many files patterns look.
	Most int
	// Make has Before make artifacts/, where the execution does not do that itself.
	Make bool
}

// isPattern says that a name stands for any number of files.
func isPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

// relative is a name that was asked for, below the workspace if it lies there.
func relative(name string) string {
	return strings.TrimPrefix(path.Clean(name), remote.Workspace+"/")
}

// Wanted is what a supervisor is to look for; nil for nothing.
func Wanted(limits *sdk.ArtifactLimits) *supervise.Artifacts {
	if limits == nil {
		return nil
	}
	return &supervise.Artifacts{Files: named(limits), Most: limits.MaxCount}
}

// named are the names that are no patterns.
func named(limits *sdk.ArtifactLimits) []string {
	names := []string{}
	for _, name := range limits.Files {
		if !isPattern(name) {
			names = append(names, relative(name))
		}
	}
	return names
}

// Marks are the files below artifacts/ as they were, by their names.
type Marks map[string]guestfiles.File

// Before looks what is there before an execution.
func (f Finder) Before(ctx context.Context, limits *sdk.ArtifactLimits) (Marks, error) {
	if limits == nil {
		return nil, nil
	}
	marks, _, err := f.look(ctx, nil, f.Make)
	return marks, err
}

// look finds what lies below artifacts/, which it can make before, and how large the files
// of these names are.
func (f Finder) look(ctx context.Context, names []string, makes bool) (Marks, []supervise.File, error) {
	answer, err := f.Store.Do(ctx, f.Instance, guestfiles.Request{Op: guestfiles.Marks, Path: remote.Workspace, Names: names, Make: makes})
	if err != nil {
		return nil, nil, err
	}
	if len(answer.Sizes) != len(names) {
		return nil, nil, sdk.Errorf(sdk.CodeUnavailable, "the sandbox did not say how large the files are")
	}
	marks := Marks{}
	for _, found := range answer.Files {
		marks[found.Below] = found
	}
	files := make([]supervise.File, len(names))
	for i, name := range names {
		files[i] = supervise.File{Name: name, Size: answer.Sizes[i]}
	}
	return marks, files, nil
}

// SendNew passes on what is there after an execution and was not before, and the files
// that were asked for.
func (f Finder) SendNew(ctx context.Context, before Marks, limits *sdk.ArtifactLimits, out sdk.Output) error {
	if limits == nil {
		return nil
	}
	names := named(limits)
	after, files, err := f.look(ctx, names, false)
	if err != nil {
		return err
	}
	var made []supervise.File
	for name, found := range after {
		if found != before[name] && !slices.Contains(names, name) {
			made = append(made, supervise.File{Name: name, Size: found.Size})
		}
	}
	slices.SortFunc(made, func(a, b supervise.File) int { return strings.Compare(a.Name, b.Name) })
	return f.Send(ctx, append(files, made...), limits, out)
}

// Send passes on files: those that were asked for by name, then those that patterns stand
// for, then what was made. The first ones come first in files too, as Wanted has them.
func (f Finder) Send(ctx context.Context, files []supervise.File, limits *sdk.ArtifactLimits, out sdk.Output) error {
	if limits == nil {
		return nil
	}
	files, err := f.matched(ctx, files, limits)
	if err != nil {
		return err
	}
	left := limits.MaxTotalBytes
	for i, file := range files {
		a := sdk.Artifact{Kind: sdk.ArtifactFile, Name: file.Name, Size: max(file.Size, 0), Group: i + 1}
		a.MIMEType = cmp.Or(mime.TypeByExtension(path.Ext(file.Name)), "application/octet-stream")
		switch {
		case i >= limits.MaxCount: // the SDK says so
		case file.Size < 0 && isPattern(file.Name):
			a.Refused = "matches no file"
		case file.Size < 0:
			a.Refused = "there is no such regular file"
		case file.Size > limits.MaxBytes:
			a.Refused = "the file is too large; it can be read as a file"
		case file.Size > left:
			a.Refused = "the file is too large beside the artifacts before it; it can be read as a file"
		default:
			a.Data, err = f.read(ctx, file)
			if err != nil && sdk.CodeOf(err) != sdk.CodeNotFound {
				return err
			}
			if err != nil {
				a.Refused = "the file is gone"
			}
			left -= int64(len(a.Data))
		}
		if err := out.Artifact(a); err != nil {
			return err
		}
	}
	return nil
}

// read reads a file as far as it was known to go.
func (f Finder) read(ctx context.Context, file supervise.File) ([]byte, error) {
	content, err := f.Store.Open(ctx, f.Instance, path.Join(remote.Workspace, file.Name), 0, file.Size)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return io.ReadAll(io.LimitReader(content, file.Size))
}

// matched puts in the files that patterns stand for: regular ones below the workspace.
func (f Finder) matched(ctx context.Context, files []supervise.File, limits *sdk.ArtifactLimits) ([]supervise.File, error) {
	if !slices.ContainsFunc(limits.Files, isPattern) {
		return files, nil
	}
	answer, err := f.Store.Do(ctx, f.Instance, guestfiles.Request{Op: guestfiles.List, Path: remote.Workspace, Depth: maxDepth, Most: f.Most})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(answer.Files, func(a, b guestfiles.File) int { return strings.Compare(a.Below, b.Below) })
	var all []supervise.File
	add := func(file supervise.File) {
		if !slices.ContainsFunc(all, func(other supervise.File) bool { return other.Name == file.Name }) {
			all = append(all, file)
		}
	}
	asked := min(len(named(limits)), len(files))
	for _, file := range files[:asked] {
		add(file)
	}
	for _, name := range limits.Files {
		if !isPattern(name) {
			continue
		}
		some := false
		pattern, err := glob.Compile(relative(name))
		for _, found := range answer.Files {
			if err == nil && found.Type == string(sdk.FileRegular) && len(all) <= limits.MaxCount && pattern.Match(found.Below) {
				add(supervise.File{Name: found.Below, Size: found.Size})
				some = true
			}
		}
		if !some {
			add(supervise.File{Name: name, Size: -1})
		}
	}
	for _, file := range files[asked:] {
		add(file)
	}
	return all[:min(len(all), limits.MaxCount+1)], nil
}
