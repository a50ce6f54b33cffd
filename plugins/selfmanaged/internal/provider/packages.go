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
	_ guestpackages.Instance = (*instance)(nil)
)

// CheckPackages implements sdk.PackageInstaller.
func (p *Provider) CheckPackages(_ context.Context, language sdk.Language, requirements []string) error {
	return p.packages.Check(language, requirements)
}

// InstallPackages implements sdk.PackageInstaller.
func (p *Provider) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	i, err := p.instances.find(req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	done, err := i.use()
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer done()
	return p.layers.install(ctx, i, req, out)
}

// openPackages makes of the settings what installations need.
func (p *Provider) openPackages(ctx context.Context, found interpreters) (err error) {
	has := guestpackages.Programs{Interpreters: found}
	if p.settings.Packages.WantsNPM() {
		if has.NPM, _, err = p.runtime.Interpreter(ctx, "npm"); err != nil {
			return err
		}
	}
	p.packages, err = guestpackages.Open(p.settings.Packages, guestpackages.Options{
		Programs: func() guestpackages.Programs { return has }, Resolver: p.resolver, Dialer: p.dialer, Logger: p.logger,
	})
	return err
}

// serveRequested lets programs of the instance have packages that they ask for. It ends with
// the sandbox.
func (i *instance) serveRequested(s *sandbox, install func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		defer cancel()
		select {
		case <-s.Exited():
		case <-ended:
		}
	}()
	guestpackages.ServeRequested(ctx, i, i.logger, install)
}

// Programs implements guestpackages.Instance.
func (i *instance) Programs() (guestpackages.Programs, bool) { return i.sandbox().programs() }

// Installing implements guestpackages.Instance.
func (i *instance) Installing() *sync.Mutex { return &i.installing }

// Owner implements guestpackages.Instance.
func (i *instance) Owner() (tenant, instanceID string) { return i.Labels[sdk.LabelTenant], i.ID }

// WithoutResult implements guestpackages.Instance.
func (i *instance) WithoutResult(ctx context.Context, timeout time.Duration, started time.Time, err error) (sdk.ExecuteResult, error) {
	return i.withoutResult(ctx, timeout, started, err)
}
