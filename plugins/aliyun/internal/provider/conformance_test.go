package provider_test

import (
	"context"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/fake"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a service whose sandboxes can run code.
func start(t *testing.T) *fake.Cloud {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("the sandboxes of the fake need bubblewrap")
	}
	cloud := fake.Start()
	t.Cleanup(cloud.Close)
	return cloud
}

func given(cloud *fake.Cloud) map[string]any {
	return map[string]any{
		"access_key_id": cloud.Keys.AccessKeyID, "access_key_secret": cloud.Keys.AccessKeySecret, "account_id": "1234567890123456",
		"control_endpoint": cloud.URL(), "data_endpoint": cloud.URL(),
	}
}

func TestConformance(t *testing.T) {
	cloud := start(t)
	cloud.PageSize = 3
	providertest.Run(t, provider.New,
		providertest.WithSettings(given(cloud)),
		providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
			cloud.Break(true)
			return func(context.Context) error { cloud.Break(false); return nil }, nil
		}),
	)
}
