package place

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Packages implements sdk.PackageInstaller by the pip of a sandbox, which looks where its
// image tells it to; a provider embeds it.
type Packages struct {
	service Service
	logger  hclog.Logger
	allowed func() bool
}

var _ sdk.PackageInstaller = Packages{}

// NewPackages makes Packages. allowed says whether the operator wants them.
func NewPackages(service Service, logger hclog.Logger, allowed func() bool) Packages {
	return Packages{service, logger, allowed}
}

// CheckPackages implements sdk.PackageInstaller.
func (p Packages) CheckPackages(_ context.Context, language sdk.Language, requirements []string) error {
	why := ""
	switch {
	case !p.allowed():
		why = "packages cannot be installed here: the operator can allow it with packages = true in the settings of this provider"
	case language != sdk.Python:
		why = "there are no packages of " + string(language) + " to install"
	default:
		return packages.Check(language, requirements)
	}
	e := sdk.Errorf(sdk.CodeNotSupported, "%s", why)
	e.Capability = sdk.CapabilityPackages
	return e
}

// InstallPackages implements sdk.PackageInstaller. What is required is there for all code of
// the user of the sandbox.
func (p Packages) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if err := p.CheckPackages(ctx, req.Language, req.Requirements); err != nil {
		return sdk.ExecuteResult{}, err
	}
	box, err := p.service.Box(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	run := Program{
		ID: remote.NewName(), Dir: "/", Timeout: req.Timeout, Grace: sdk.InterruptGrace,
		Argv: append([]string{"python3", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--"}, req.Requirements...),
		// The sandbox is all of the agent's: there is nobody else whose packages could break.
		Env: box.Environment(map[string]string{"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"}),
	}
	said := &heard{limit: int(req.OutputLimit)}
	e := Execution{Service: p.service, Box: box}
	done, begun, err := e.follow(ctx, run, said, &tailed{})
	if err != nil {
		stop(ctx, p.service, p.logger, box, run.ID)
		return sdk.ExecuteResult{}, sdk.ExecutionError(p.service.Explain(ctx, err, "install packages"), begun)
	}
	return said.tell(done, out)
}

// heard keeps what an installer prints: how its errors begin is known at its end.
type heard struct {
	limit          int
	stdout, stderr bytes.Buffer
}

func (h *heard) Stdout(p []byte) error { h.keep(&h.stdout, p); return nil }
func (h *heard) Stderr(p []byte) error { h.keep(&h.stderr, p); return nil }

func (h *heard) keep(in *bytes.Buffer, p []byte) { in.Write(p[:min(len(p), h.limit-in.Len())]) }

// tell passes on what was heard, and what became of the installation.
func (h *heard) tell(done supervise.Done, out sdk.Output) (sdk.ExecuteResult, error) {
	result := sdk.ExecuteResult{
		Status: sdk.StatusSucceeded, ExitCode: done.Exit, Duration: time.Duration(done.Seconds * float64(time.Second)), PeakMemoryBytes: done.Peak,
	}
	if done.Exit != 0 {
		result.Status = sdk.StatusFailed
	}
	done.Settle(&result)
	stdout, stderr := h.stdout.String(), h.stderr.String()
	if done.Error != "" || strings.Contains(stderr, "No module named pip") {
		e := sdk.Errorf(sdk.CodeNotSupported, "there is no pip in the sandboxes of this provider: take an image that has it")
		e.Capability = sdk.CapabilityPackages
		return sdk.ExecuteResult{}, e
	}
	if result.Status != sdk.StatusSucceeded {
		stderr = packages.Explain(stdout, stderr, result)
	}
	return result, errors.Join(out.Stdout([]byte(stdout)), out.Stderr([]byte(stderr)))
}
