package provider_test

import (
	"context"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

func TestConformance(t *testing.T) {
	server := cloud(t, e2bfake.Options{})
	providertest.Run(t, provider.New, providertest.WithSettings(map[string]any{
		"api_key": e2bfake.DefaultAPIKey, "api_url": server.APIURL, "sandbox_url": server.SandboxURL,
	}), providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
		repair := server.Break()
		return func(context.Context) error { repair(); return nil }, nil
	}))
}
