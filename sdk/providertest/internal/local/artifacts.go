package local

import (
	"mime"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

// makeArtifacts makes the directory, unless something has its name.
func (i *instance) makeArtifacts() { _ = os.Mkdir(filepath.Join(i.workspace(), "artifacts"), 0o755) }

// artifactsBefore is what is below artifacts before an execution; nil if nobody
// wants any.
func (i *instance) artifactsBefore(req sdk.ExecuteRequest) map[string]time.Time {
	if req.Artifacts == nil {
		return nil
	}
	return i.artifactFiles()
}

func (i *instance) artifactFiles() map[string]time.Time {
	files := map[string]time.Time{}
	_ = filepath.WalkDir(filepath.Join(i.workspace(), "artifacts"), func(file string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // the directory need not be there
		}
		if info, err := entry.Info(); err == nil {
			name, _ := filepath.Rel(i.workspace(), file)
			files[name] = info.ModTime()
		}
		return nil
	})
	return files
}

// matching are the regular files that a pattern names; anything else is its own name.
func (i *instance) matching(pattern string) []string {
	g, err := glob.Compile(pattern)
	if err != nil || !strings.ContainsAny(pattern, "*?") {
		return []string{pattern}
	}
	var names []string
	_ = filepath.WalkDir(i.workspace(), func(file string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if name, err := filepath.Rel(i.workspace(), file); err == nil && g.Match(name) {
			names = append(names, name)
		}
		return nil
	})
	if len(names) == 0 {
		return []string{pattern}
	}
	return names
}

// sendArtifacts sends the files that an execution wrote and those asked for. The
// SDK applies the limits.
func (i *instance) sendArtifacts(req sdk.ExecuteRequest, before map[string]time.Time, out sdk.Output) error {
	if req.Artifacts == nil {
		return nil
	}
	var names []string
	for _, name := range req.Artifacts.Files {
		names = append(names, i.matching(name)...)
	}
	for name, at := range i.artifactFiles() {
		if !before[name].Equal(at) {
			names = append(names, name)
		}
	}
	root, err := os.OpenRoot(i.workspace())
	if err != nil {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	defer root.Close()
	for _, name := range names {
		artifact := sdk.Artifact{Kind: sdk.ArtifactFile, Name: name, MIMEType: mime.TypeByExtension(path.Ext(name))}
		if artifact.Data, err = root.ReadFile(name); err != nil {
			artifact.Refused = "there is no such file"
		}
		if artifact.MIMEType == "" {
			artifact.MIMEType = "application/octet-stream"
		}
		if err := out.Artifact(artifact); err != nil {
			return err
		}
	}
	return nil
}
