package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.PackageInstaller = (*Provider)(nil)

func (i *instance) packages() string { return filepath.Join(i.dir, "packages") }

// CheckPackages implements sdk.PackageInstaller.
func (p *Provider) CheckPackages(_ context.Context, language sdk.Language, requirements []string) error {
	if p.settings.Packages == "" || language != sdk.Python {
		refused := sdk.NotSupported("local", sdk.CapabilityPackages)
		refused.Message = "packages of " + string(language) + " cannot be installed here: set packages"
		return refused
	}
	for _, requirement := range requirements {
		if !fs.ValidPath(requirement) || requirement == "." {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "%q is not the name of a package", requirement)
		}
	}
	return nil
}

// InstallPackages implements sdk.PackageInstaller: a package of Python is a
// directory of that name in the one that the operator has set.
func (p *Provider) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	i, err := p.find(req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	if err := p.CheckPackages(ctx, req.Language, req.Requirements); err != nil {
		return sdk.ExecuteResult{}, err
	}
	started := time.Now()
	for _, requirement := range req.Requirements {
		from := filepath.Join(p.settings.Packages, requirement)
		err := os.CopyFS(filepath.Join(i.packages(), requirement), os.DirFS(from))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 1, Duration: time.Since(started)},
				out.Stderr([]byte("Failed to install requirements: there is no package " + requirement + "\n"))
		}
	}
	return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Duration: time.Since(started)}, out.Stdout([]byte("installed\n"))
}
