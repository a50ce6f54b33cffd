package provider_test

import (
	"context"
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
	t.Run("waiting", func(t *testing.T) { conforms(t, 3, providertest.WithOnly(waiting)) })
	t.Run("others", func(t *testing.T) { conforms(t, 6, providertest.WithSkip(waiting, "it is among those that wait")) })
}

func conforms(t *testing.T, patience float64, which providertest.Option) {
	t.Helper()
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	providertest.Run(t, provider.New, which, providertest.WithPatience(patience), providertest.WithSettings(map[string]any{
		"api_key": e2bfake.DefaultAPIKey, "domain": server.Domain,
	}), providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
		repair := server.Break()
		return func(context.Context) error { repair(); return nil }, nil
	}))
}
