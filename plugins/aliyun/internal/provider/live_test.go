//go:build live

package provider_test

import (
	"os"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// The suite against the service itself, with an account that pays for it:
//
//	AGENTRUN_ACCESS_KEY_ID=… AGENTRUN_ACCESS_KEY_SECRET=… AGENTRUN_ACCOUNT_ID=… go test -tags live -timeout 2h -run TestLive ./plugins/aliyun/internal/provider
func TestLive(t *testing.T) {
	values := map[string]any{}
	for setting, name := range map[string]string{
		"access_key_id": "AGENTRUN_ACCESS_KEY_ID", "access_key_secret": "AGENTRUN_ACCESS_KEY_SECRET", "account_id": "AGENTRUN_ACCOUNT_ID",
		"security_token": "AGENTRUN_SECURITY_TOKEN", "region": "AGENTRUN_REGION", "template_name": "AGENTRUN_TEMPLATE_NAME",
	} {
		if value := os.Getenv(name); value != "" {
			values[setting] = value
		}
	}
	for _, setting := range []string{"access_key_id", "access_key_secret", "account_id"} {
		if values[setting] == nil {
			t.Fatalf("no account is given: %s is missing", setting)
		}
	}
	providertest.Run(t, provider.New, providertest.WithSettings(values), providertest.WithPatience(5))
}
