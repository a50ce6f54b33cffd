package provider

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
	"github.com/sandbox-broker/sandbox-broker/e2e/smallroot"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// The executable passes the whole suite in e2e; these are the cases that it must
// skip: about the return of a call, about packages from an index of ours, about templates of
// this machine's bash, and about volumes, which it has where it is given room.
func TestTheContractThatOnlyShowsInProcess(t *testing.T) {
	tier.Full(t)
	index := packageindex.Start(t)
	index.AddWheel("first", "1.0", "")
	providertest.Run(t, New,
		providertest.WithOnly(regexp.MustCompile(`^(deadlines/[a-z]+/a cancelled call|packages/python/|templates/|volumes/)`)),
		providertest.WithPatience(3),
		providertest.WithSettings(map[string]any{
			"pool_size": 2, "runsc": binaries.Runsc(t), "guest": filepath.Join(binaries.Dir(t), "sandbox-guest"),
			"packages": "on", "package_index": index.Simple(),
			"volumes_mb": 512,
		}),
		providertest.WithRequirement(sdk.Python, providertest.Requirement{Name: "first", Code: "import first"}),
		providertest.WithTemplate(providertest.Template{
			Request:  sdk.BuildTemplateRequest{Rootfs: smallroot.Bash(t)},
			Language: sdk.Bash, Code: "cat /srv/greeting",
		}),
	)
}
