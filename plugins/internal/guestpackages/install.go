package guestpackages

import (
	"bytes"
	"context"
	"errors"
	"net"
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
	in, err := from.Begin(i, req)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer in.End()
	return in.Install(ctx, req.Timeout, out)
}

// Installation is one that has its turn in an instance.
type Installation struct {
	from     *Sources
	instance Instance
	req      sdk.InstallPackagesRequest
	has      Programs
}

// Begin looks whether the operator allows an installation, and takes its turn in the instance.
// The caller owes an End.
func (from *Sources) Begin(i Instance, req sdk.InstallPackagesRequest) (*Installation, error) {
	has, own := i.Programs()
	if !own {
		has = from.programs()
	}
	if err := from.installable(req.Language, has); err != nil {
		return nil, err
	}
	if err := packages.Check(req.Language, req.Requirements); err != nil {
		return nil, err
	}
	if !i.Installing().TryLock() {
		return nil, sdk.Errorf(sdk.CodeConflict, "another installation is running in the instance")
	}
	return &Installation{from: from, instance: i, req: req, has: has}, nil
}

// End gives the turn back.
func (in *Installation) End() { in.instance.Installing().Unlock() }

// Programs are what the sandbox has.
func (in *Installation) Programs() Programs { return in.has }

// Install has the installer of the language fetch the packages.
func (in *Installation) Install(ctx context.Context, timeout time.Duration, out sdk.Output) (sdk.ExecuteResult, error) {
	said := &installerOutput{limit: int(in.req.OutputLimit)}
	result, err := in.run(ctx, in.from.installer(in.req, in.has), timeout, in.from.egress.Session(in.instance.Owner()), said)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	return report(in.req.Language, result, said, out)
}

// Run has a program do something about the packages of the instance, as an installer but
// without a way out. What it says is for the log, if it fails.
func (in *Installation) Run(ctx context.Context, program guestclient.Installer, timeout time.Duration) (result sdk.ExecuteResult, said string, err error) {
	output := &installerOutput{limit: maxSaid}
	result, err = in.run(ctx, program, timeout, noWayOut{}, output)
	return result, output.stdout.String() + output.stderr.String(), err
}

// maxSaid bounds what is kept of what such a program says.
const maxSaid = 16 << 10

func (in *Installation) run(ctx context.Context, program guestclient.Installer, timeout time.Duration, way guestclient.Connector, said *installerOutput) (sdk.ExecuteResult, error) {
	started := time.Now()
	result, err := in.instance.Guest().Install(ctx, program, timeout, int64(said.limit), way, said)
	if err != nil {
		return in.instance.WithoutResult(ctx, timeout, started, err)
	}
	return result, nil
}

// Report hands over what an installation came to that was made elsewhere, as one that was
// made in the instance.
func (in *Installation) Report(result sdk.ExecuteResult, stdout, stderr []byte, out sdk.Output) (sdk.ExecuteResult, error) {
	said := &installerOutput{limit: int(in.req.OutputLimit)}
	if err := errors.Join(said.Stdout(stdout), said.Stderr(stderr)); err != nil {
		return sdk.ExecuteResult{}, err
	}
	return report(in.req.Language, result, said, out)
}

// noWayOut refuses all connections.
type noWayOut struct{}

// Connect implements guestclient.Connector.
func (noWayOut) Connect(context.Context, string, uint16) (net.Conn, error) {
	return nil, errors.New("nothing is fetched for packages that are here")
}

// Installable refuses a language whose packages the operator has not allowed, or not made
// possible.
func (from *Sources) Installable(language sdk.Language) error {
	return from.installable(language, from.programs())
}

// Allowed is Installable for sandboxes whose programs are not known.
func (from *Sources) Allowed(language sdk.Language) error {
	return from.installable(language, Programs{Interpreters: map[sdk.Language]string{language: string(language)}})
}

// installable is Installable for sandboxes that have those programs.
func (from *Sources) installable(language sdk.Language, has Programs) error {
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
func (from *Sources) installer(req sdk.InstallPackagesRequest, has Programs) guestclient.Installer {
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
