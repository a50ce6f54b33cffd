package sdk

import (
	"context"
	"time"
)

// PackageInstaller is implemented by providers that can install packages of a
// language into an instance.
type PackageInstaller interface {
	// CheckPackages refuses requirements that no instance could get, and installs
	// nothing. It is called before an instance is made for them: keep it cheap.
	// Return CodeNotSupported with CapabilityPackages where the operator has not
	// allowed it, and say how to turn it on; CodeInvalidRequest with the field
	// "requirements" for what the installer would not take.
	CheckPackages(ctx context.Context, language Language, requirements []string) error

	// InstallPackages installs what is required for the life of the instance;
	// executions and contexts that start later find it. out gets what the
	// installer prints. A package that cannot be installed is a result with
	// StatusFailed, an exit code that is not zero, and stderr that begins with
	// "Failed to install requirements: ". What CheckPackages refuses it refuses
	// likewise.
	InstallPackages(ctx context.Context, req InstallPackagesRequest, out Output) (ExecuteResult, error)
}

// InstallPackagesRequest says what to install.
type InstallPackagesRequest struct {
	InstanceID string
	Language   Language
	// Requirements as the language's installer reads them: "numpy",
	// "numpy==2.1". None begins with "-".
	Requirements []string
	// Timeout and OutputLimit as in ExecuteRequest.
	Timeout     time.Duration
	OutputLimit int64
}
