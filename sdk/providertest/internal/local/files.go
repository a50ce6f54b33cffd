package local

import (
	"os"
	"path/filepath"
	"strings"

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
	return localfiles.New(localfiles.Options{PlacesOf: func(id string) []string {
		if strings.HasPrefix(id, volumePrefix) {
			return []string{"/"}
		}
		return nil
	}, Directory: func(instanceID string) (string, error) {
		if strings.HasPrefix(instanceID, volumePrefix) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if _, known := p.volumes[instanceID]; !known {
				return "", noSuchVolume("")
			}
			return p.volumeDir(instanceID), nil
		}
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
