package guestpackages

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Check refuses what is not allowed, and what are no requirements.
func (from *Sources) Check(language sdk.Language, requirements []string) error {
	if err := from.Installable(language); err != nil {
		return err
	}
	return packages.Check(language, requirements)
}

// Install installs packages in an instance, which is not paused meanwhile.
func (from *Sources) Install(ctx context.Context, i Instance, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if err := from.Check(req.Language, req.Requirements); err != nil {
		return sdk.ExecuteResult{}, err
	}
	if !i.Installing().TryLock() {
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeConflict, "another installation is running in the instance")
	}
	defer i.Installing().Unlock()

	said := &installerOutput{limit: int(req.OutputLimit)}
	started := time.Now()
	result, err := i.Guest().Install(ctx, from.installer(req), req.Timeout, req.OutputLimit, from.egress.Session(i.Owner()), said)
	if err != nil {
		if result, err = i.WithoutResult(ctx, req.Timeout, started, err); err != nil {
			return sdk.ExecuteResult{}, err
		}
	}
	return report(req.Language, result, said, out)
}

// Installable refuses a language whose packages the operator has not allowed, or not made
// possible.
func (from *Sources) Installable(language sdk.Language) error {
	has := from.programs()
	refused := func(format string, args ...any) error {
		e := sdk.Errorf(sdk.CodeNotSupported, format, args...)
		e.Capability = sdk.CapabilityPackages
		return e
	}
	switch {
	case from.egress == nil:
		return refused("packages cannot be installed here: the operator can allow it with %s = %q in the settings of this provider", settingPackages, packagesOn)
	case language == sdk.Python && from.Index == nil && from.Wheels == nil:
		return refused("there is no index of Python packages here: the operator can name one with %s or %s", settingPackageIndex, settingWheelDir)
	case language == sdk.JavaScript && from.Registry == nil:
		return refused("there is no registry of JavaScript packages here: the operator can name one with %s", settingNPMRegistry)
	case language == sdk.JavaScript && has.NPM == "":
		return refused("there is no npm for the sandboxes of this provider to use, so no JavaScript packages can be installed")
	case language != sdk.Python && language != sdk.JavaScript:
		return refused("there are no packages of %s to install", language)
	case has.Interpreters[language] == "":
		return refused("there is no %s for the sandboxes of this provider to use", language)
	}
	return nil
}

// installer is the program that does it.
func (from *Sources) installer(req sdk.InstallPackagesRequest) guestclient.Installer {
	has := from.programs()
	interpreter := has.Interpreters[req.Language]
	var installer guestclient.Installer
	if req.Language == sdk.Python {
		installer.Argv, installer.Env = packages.Python(interpreter, from.Sources, req.Requirements)
	} else {
		installer.Argv, installer.Env = packages.Node(interpreter, has.NPM, from.Sources, req.Requirements)
	}
	return installer
}

// report hands over what the installer has printed. Its errors have one form, in
// whatever way it failed.
func report(language sdk.Language, result sdk.ExecuteResult, said *installerOutput, out sdk.Output) (sdk.ExecuteResult, error) {
	stdout, stderr := said.stdout.Bytes(), said.stderr.Bytes()
	if result.Status != sdk.StatusSucceeded {
		if language == sdk.Python && strings.Contains(string(stderr), "No module named pip") {
			e := sdk.Errorf(sdk.CodeNotSupported, "there is no pip for the sandboxes of this provider to use: the operator can install python3-pip where they have their Python from")
			e.Capability = sdk.CapabilityPackages
			return sdk.ExecuteResult{}, e
		}
		stderr = []byte(packages.Explain(string(stdout), string(stderr), result))
		result.ExitCode = max(result.ExitCode, 1)
	}
	result.Result = nil
	return result, errors.Join(out.Stdout(stdout), out.Stderr(stderr))
}

// installerOutput keeps what an installer prints: how its errors begin is known
// only when it has ended.
type installerOutput struct {
	limit          int
	stdout, stderr bytes.Buffer
}

var _ sdk.Output = (*installerOutput)(nil)

// Stdout implements sdk.Output.
func (o *installerOutput) Stdout(p []byte) error { return o.keep(&o.stdout, p) }

// Stderr implements sdk.Output.
func (o *installerOutput) Stderr(p []byte) error { return o.keep(&o.stderr, p) }

func (o *installerOutput) keep(in *bytes.Buffer, p []byte) error {
	in.Write(p[:min(len(p), o.limit-in.Len())])
	return nil
}

// Artifact implements sdk.Output. An installation has none.
func (*installerOutput) Artifact(sdk.Artifact) error { return nil }
