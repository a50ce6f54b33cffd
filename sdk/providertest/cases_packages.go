package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func packageCases(languages []sdk.Language) []Case {
	const group = "packages"
	return needing(inLanguages(languages, []Case{
		{Group: group, Name: "a package is there once it is installed", run: packageIsInstalled},
		{Group: group, Name: "a package is installed for one instance", run: packageIsOfOneInstance},
		{Group: group, Name: "a package that does not exist fails and says why", run: packageDoesNotExist},
		{Group: group, Name: "what can be installed is not refused beforehand", run: packageIsChecked},
		{Group: group, Name: "what is refused beforehand is refused by the installation", run: packageIsRefused},
		{Group: group, Name: "an unknown instance is not found", run: packageUnknownInstance},
	}), sdk.CapabilityPackages)
}

const noSuchPackage = "no-such-package-in-any-index-4c1d"

// notAllowed skips where the operator has not allowed packages: "Return
// CodeNotSupported with CapabilityPackages where the operator has not allowed it."
// (PackageInstaller.CheckPackages)
func (c *scene) notAllowed(err error) {
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeNotSupported && e.Capability == sdk.CapabilityPackages {
		c.skip("with these settings no packages are installed in %s: %s", c.language, e.Message)
	}
}

// install installs, and skips where the operator has not allowed it.
func (in instance) install(requirements ...string) outcome {
	got := in.tryInstall(requirements...)
	in.notAllowed(got.err)
	in.must(got.err, "install %v", requirements)
	return got
}

func (in instance) tryInstall(requirements ...string) outcome {
	out := newHeard()
	var result sdk.ExecuteResult
	err := in.call("InstallPackages", func(ctx context.Context) (err error) {
		result, err = in.InstallPackages(ctx, sdk.InstallPackagesRequest{
			InstanceID: in.ID, Language: in.language, Requirements: requirements, Timeout: in.suite.within(codeTimeout), OutputLimit: outputLimit,
		}, out)
		return err
	})
	return outcome{ExecuteResult: result, stdout: out.stdout.String(), stderr: out.stderr.String(), err: err}
}

func (c *scene) requirement() Requirement {
	r, ok := c.suite.requirement[c.language]
	if !ok {
		c.skip("nobody named a package of %s that can be installed here", c.language)
	}
	return r
}

// "InstallPackages installs what is required for the life of the instance;
// executions and contexts that start later find it." (PackageInstaller)
func packageIsInstalled(c *scene) {
	r := c.requirement()
	in := c.instance()
	c.check(in.run(r.Code).ExitCode != 0, "%s is there before it is installed", r.Name)
	in.install(r.Name).succeeded()
	for range 2 {
		in.run(r.Code).succeeded()
	}
}

// The same: of the instance.
func packageIsOfOneInstance(c *scene) {
	r := c.requirement()
	in, other := c.instance(), c.instance()
	in.install(r.Name).succeeded()
	c.check(other.run(r.Code).ExitCode != 0, "%s is in an instance for which nobody installed it", r.Name)
}

// "A package that cannot be installed is a result with StatusFailed, an exit code
// that is not zero, and stderr that begins with "Failed to install requirements:
// "." (PackageInstaller)
func packageDoesNotExist(c *scene) {
	got := c.instance().install(noSuchPackage)
	got.failedInCode()
	const begin = "Failed to install requirements: "
	c.check(strings.HasPrefix(got.stderr, begin), "stderr is %s; it must begin with %q", shown(got.stderr), begin)
}

// "CheckPackages refuses requirements that no instance could get, and installs
// nothing." (PackageInstaller)
func packageIsChecked(c *scene) {
	r := c.requirement()
	in := c.instance()
	c.must(c.CheckPackages(c.ctx, c.language, []string{r.Name}), "check %s", r.Name)
	c.check(in.run(r.Code).ExitCode != 0, "%s is there after a check", r.Name)
}

// "CodeInvalidRequest with the field "requirements" for what the installer would not
// take." "What CheckPackages refuses it refuses likewise." (PackageInstaller)
func packageIsRefused(c *scene) {
	in := c.instance()
	refused := 0
	for _, requirement := range []string{"", "./here", "../..", "/etc", "a b c", "@@@", "x; y", "--index-url=http://127.0.0.1"} {
		err := c.CheckPackages(c.ctx, c.language, []string{requirement})
		c.notAllowed(err)
		if err == nil {
			continue
		}
		refused++
		c.refusedField(err, "CheckPackages of "+shown(requirement), sdk.CodeInvalidRequest, "requirements")
		c.refusedField(in.tryInstall(requirement).err, "InstallPackages of "+shown(requirement), sdk.CodeInvalidRequest, "requirements")
	}
	if refused == 0 {
		c.skip("the provider leaves it to the installer to refuse what is no package")
	}
}

// The same as of all calls for an instance.
func packageUnknownInstance(c *scene) {
	_, err := c.InstallPackages(c.ctx, sdk.InstallPackagesRequest{
		InstanceID: "unknown" + randomWord(), Language: c.language, Requirements: []string{noSuchPackage}, Timeout: codeTimeout, OutputLimit: outputLimit,
	}, newHeard())
	c.refused(err, fmt.Sprintf("InstallPackages of %s in an unknown instance", c.language), sdk.CodeNotFound, sdk.CodeNotSupported)
}
