package provider_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

func TestMain(m *testing.M) {
	daytonafake.Main()
	goleak.VerifyTestMain(m)
}

// start starts a service whose sandboxes can run code. Where there is no bubblewrap the test
// is skipped; in CI that is a failure.
func start(t *testing.T, options daytonafake.Options) *daytonafake.Server {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := daytonafake.Start(options)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, server.Close()) })
	return server
}

// given are settings for a service, with others on top.
func given(server *daytonafake.Server, more map[string]any) map[string]any {
	settings := map[string]any{"api_key": daytonafake.DefaultAPIKey, "api_url": server.APIURL}
	for name, value := range more {
		settings[name] = value
	}
	return settings
}

// keepsMemory is a class of sandboxes that can be paused.
var keepsMemory = daytonafake.Options{Class: "vm", PageSize: 3}

// Cases that mostly wait run beside the others, each share with a service of its own. The gate
// leaves out the groups that the kit for remote sandboxes answers, which it runs with E2B, and half
// of the others, which it runs with Aliyun AgentRun.
func TestConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		kit := regexp.MustCompile("^(files|file_search|file_watch|file_mode|commands|contexts|artifacts|archives|streams|deadlines|arguments|interrupt|variables)/|/(javascript|bash)/")
		conforms(t, keepsMemory, providertest.WithSkip(kit, tier.Reason), providertest.WithShare(1, 2))
		return
	}
	waiting := regexp.MustCompile("^(deadlines|interrupt|backend|streams|contexts)/")
	for share := range shares {
		t.Run(fmt.Sprint("waiting ", share), func(t *testing.T) {
			t.Parallel()
			conforms(t, keepsMemory, providertest.WithOnly(waiting), providertest.WithShare(share, shares))
		})
		t.Run(fmt.Sprint("others ", share), func(t *testing.T) {
			t.Parallel()
			conforms(t, keepsMemory, providertest.WithSkip(waiting, "it is among those that wait"), providertest.WithShare(share, shares))
		})
	}
}

// shares of the cases run beside each other.
const shares = 2

// An image may have everything belong to an ordinary user, without sudo: the interface has
// /workspace then, and code has not. What sudo changes is the kit's, and tried with AgentRun.
func TestConformanceAsAnOrdinaryUser(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	options := keepsMemory
	options.User = true
	itself := regexp.MustCompile(`^(commands/it starts in|files/a link that stays in its place)`)
	conforms(t, options, providertest.WithOnly(regexp.MustCompile("^(files|file_search|commands|contexts/python)/")), providertest.WithSkip(itself, "code names /workspace itself"))
}

func conforms(t *testing.T, options daytonafake.Options, which ...providertest.Option) {
	t.Helper()
	server := start(t, options)
	// What ends code is the same for all languages.
	once := regexp.MustCompile("^(deadlines|streams)/(javascript|bash)/")
	providertest.Run(t, provider.New, append([]providertest.Option{
		providertest.WithPatience(3), providertest.WithSkip(once, "it runs in Python"),
		providertest.WithSettings(given(server, nil)),
		providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
			repair := server.Break()
			return func(context.Context) error { repair(); return nil }, nil
		}),
	}, which...)...)
}
