package provider_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// The cases that mostly wait run beside the others, each with a cloud of its own. The gate runs
// half of those in Python.
func TestConformance(t *testing.T) {
	t.Parallel()
	waiting := regexp.MustCompile("^(deadlines|contexts|set_ttl|backend)/")
	run := shares
	if testing.Short() {
		run = 1
	}
	for share := range run {
		t.Run(fmt.Sprint("waiting ", share), func(t *testing.T) { conforms(t, share, providertest.WithOnly(waiting)) })
		t.Run(fmt.Sprint("others ", share), func(t *testing.T) {
			conforms(t, share, providertest.WithSkip(waiting, "it is among those that wait"))
		})
	}
}

// shares of the cases run beside each other.
const shares = 2

func conforms(t *testing.T, share int, which providertest.Option) {
	t.Helper()
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	options := []providertest.Option{
		providertest.WithShare(share, shares), providertest.WithPatience(3), providertest.WithSettings(map[string]any{
			"api_key": e2bfake.DefaultAPIKey, "domain": server.Domain,
		}), providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
			repair := server.Break()
			return func(context.Context) error { repair(); return nil }, nil
		}),
	}
	if testing.Short() {
		options = append(options, providertest.WithSkip(regexp.MustCompile("/(javascript|bash)/"), tier.Reason))
	}
	providertest.Run(t, provider.New, append(options, which)...)
}
