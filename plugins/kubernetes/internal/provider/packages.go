package provider

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	_ sdk.PackageInstaller   = (*Provider)(nil)
	_ guestpackages.Instance = served{}
)

// served is an instance as its provider has it.
type served struct {
	*instance
	p *Provider
}

// CheckPackages implements sdk.PackageInstaller.
func (p *Provider) CheckPackages(_ context.Context, language sdk.Language, requirements []string) error {
	return p.packages.Check(language, requirements)
}

// InstallPackages implements sdk.PackageInstaller.
func (p *Provider) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	i, err := p.find(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	return p.packages.Install(ctx, served{i, p}, req, out)
}

// serveAgain is how soon programs that ask for packages are listened to again after the
// connection to the guest broke.
const serveAgain = time.Second

// serveRequested lets programs of an instance have packages that they ask for, until it ends.
func (p *Provider) serveRequested(i *instance) {
	if !p.maker.packages {
		return
	}
	p.background.Go(func() {
		ctx, cancel := context.WithCancel(p.life)
		defer cancel()
		go func() {
			select {
			case <-i.exited:
				cancel()
			case <-ctx.Done():
			}
		}()
		for ctx.Err() == nil {
			guestpackages.ServeRequested(ctx, served{i, p}, p.logger, p.InstallPackages)
			select {
			case <-time.After(serveAgain):
			case <-ctx.Done():
			}
		}
	})
}

// Programs implements guestpackages.Instance: all sandboxes have the same.
func (served) Programs() (guestpackages.Programs, bool) { return guestpackages.Programs{}, false }

// Installing implements guestpackages.Instance.
func (i served) Installing() *sync.Mutex { return &i.installing }

// Owner implements guestpackages.Instance.
func (i served) Owner() (tenant, instanceID string) { return i.Labels[sdk.LabelTenant], i.ID }

// WithoutResult implements guestpackages.Instance.
func (i served) WithoutResult(ctx context.Context, timeout time.Duration, started time.Time, err error) (sdk.ExecuteResult, error) {
	return i.p.resultOf(ctx, i.instance, sdk.ExecuteResult{}, err, timeout, started)
}
