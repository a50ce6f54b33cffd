package provider_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// The cases that mostly wait run beside the others, each with a cloud of its own.
func TestConformance(t *testing.T) {
	t.Parallel()
	waiting := regexp.MustCompile("^(deadlines|contexts|set_ttl|backend)/")
	for share := range shares {
		t.Run(fmt.Sprint("waiting ", share), func(t *testing.T) { conforms(t, 3, share, providertest.WithOnly(waiting)) })
		t.Run(fmt.Sprint("others ", share), func(t *testing.T) {
			conforms(t, 6, share, providertest.WithSkip(waiting, "it is among those that wait"))
		})
	}
}

// shares of the cases run beside each other.
const shares = 2

func conforms(t *testing.T, patience float64, share int, which providertest.Option) {
	t.Helper()
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	providertest.Run(t, provider.New, which, providertest.WithShare(share, shares), providertest.WithPatience(patience), providertest.WithSettings(map[string]any{
		"api_key": e2bfake.DefaultAPIKey, "domain": server.Domain,
	}), providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
		repair := server.Break()
		return func(context.Context) error { repair(); return nil }, nil
	}))
}
