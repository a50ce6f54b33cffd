package local

import (
	"os"
	"path/filepath"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
)

var (
	_ sdk.Files          = (*Provider)(nil)
	_ sdk.FileSearcher   = (*Provider)(nil)
	_ sdk.FileWatcher    = (*Provider)(nil)
	_ sdk.FileModeSetter = (*Provider)(nil)
	_ sdk.Archiver       = (*Provider)(nil)
)

// files are those of all instances: /workspace and /tmp, both below the directory of
// the instance.
func (p *Provider) files() *localfiles.Files {
	return localfiles.New(localfiles.Options{Directory: func(instanceID string) (string, error) {
		i, err := p.find(instanceID)
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Join(i.dir, "tmp"), 0o700); err != nil {
			return "", sdk.Errorf(sdk.CodeNotFound, "no such instance")
		}
		return i.dir, nil
	}})
}
