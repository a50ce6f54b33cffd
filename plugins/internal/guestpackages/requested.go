package guestpackages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// requestedTimeout is how long an installation may take that code asked for by itself.
// Its execution has a limit of its own, which ends the wait and not the installation.
const requestedTimeout = 5 * time.Minute

// ServeRequested lets programs of an instance have packages that they ask for, as its tenant
// could for them. It returns when its connection to the guest has ended, or ctx.
func ServeRequested(ctx context.Context, i Instance, logger hclog.Logger, install func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error)) {
	tenant, id := i.Owner()
	i.Guest().ServeRequested(ctx, func(ctx context.Context, requirements []string) guestclient.Installed {
		logger.Info("code asks for packages", "tenant", tenant, "instance", id, "requirements", len(requirements))
		said := &installerOutput{limit: 1 << 20}
		result, err := install(ctx, sdk.InstallPackagesRequest{
			InstanceID: id, Language: sdk.Python, Requirements: requirements, Timeout: requestedTimeout, OutputLimit: int64(said.limit),
		}, said)
		if err != nil {
			return guestclient.Installed{ExitCode: 1, Stderr: fmt.Appendf(nil, "ERROR: %s\n", messageOf(err))}
		}
		return guestclient.Installed{ExitCode: result.ExitCode, Stdout: said.stdout.Bytes(), Stderr: said.stderr.Bytes()}
	})
}

// messageOf is an error for those who did not call the broker's API.
func messageOf(err error) string {
	if coded, ok := errors.AsType[*sdk.Error](err); ok {
		return coded.Message
	}
	return err.Error()
}
