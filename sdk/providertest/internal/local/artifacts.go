package local

import (
	"mime"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

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

// sendArtifacts sends the files that an execution wrote and those asked for. The
// SDK applies the limits.
func (i *instance) sendArtifacts(req sdk.ExecuteRequest, before map[string]time.Time, out sdk.Output) error {
	if req.Artifacts == nil {
		return nil
	}
	names := req.Artifacts.Files
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
