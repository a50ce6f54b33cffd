// Package frontdoor has what the tests of front doors share: brokers with a real provider,
// and with those of clouds on their fakes; the table of what works on which; and what
// hostile clients send. The tests are in the packages below it, one for each
// system whose own client they run.
package frontdoor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

// limits leave time to a slow machine, and metrics tell what a broker is busy with.
const limits = "metrics {\n  listen = \"127.0.0.1:0\"\n}\nlimits {\n  default_timeout = \"60s\"\n  create_timeout = \"5m\"\n}\n"

// Real starts a broker with sandboxes of gVisor and the given doors.
func Real(t testing.TB, doors string, changes ...func(*harness.Options)) *harness.Broker {
	t.Helper()
	o := realOptions(t, doors)
	for _, change := range changes {
		change(&o)
	}
	return harness.Start(t, o)
}

func realOptions(t testing.TB, doors string) harness.Options {
	return harness.Options{Config: harness.Tenants + limits + doors + fmt.Sprintf(
		"provider \"self_managed\" {\n  runsc = %q\n  pool_size = 2\n  memory_mb = 256\n  queue_timeout = \"4m\"\n}\n", binaries.Runsc(t))}
}

// Several starts two brokers as Real does, and returns the URL of a load balancer that sends
// each request to the other one.
func Several(t testing.TB, doors string) string {
	t.Helper()
	config := realOptions(t, doors).Config
	return harness.Balance(t, harness.StartPeers(t, harness.Options{}, "", config, config))
}

// The providers that a door is tried on.
const (
	SelfManaged = "self_managed"
	E2B         = "e2b"
	Aliyun      = "aliyun"
	Daytona     = "daytona"
)

// Providers are the columns of the tables.
var Providers = []string{SelfManaged, E2B, Aliyun, Daytona}

// Main is the TestMain of a package that uses On.
func Main(m *testing.M) {
	e2bfake.Main()
	daytonafake.Main()
	if err := aliyunfake.Trust(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Each runs the test on each of Providers, in the gate on this machine and in one cloud. Each door
// names another cloud, so that the gate sees all of them: `make test-all` runs all pairs.
func Each(t *testing.T, cloud string, test func(t *testing.T, provider string)) {
	t.Helper()
	for _, provider := range Providers {
		t.Run(provider, func(t *testing.T) {
			if provider != SelfManaged && provider != cloud {
				tier.Full(t)
			}
			test(t, provider)
		})
	}
}

// On starts a broker with one of Providers and the given doors. The caller's TestMain is Main.
func On(t testing.TB, provider, doors string) *harness.Broker {
	t.Helper()
	var block string
	switch provider {
	case E2B:
		binaries.Needs(t, "bwrap", "bubblewrap")
		server, err := e2bfake.Start(e2bfake.Options{})
		assert.NilError(t, err)
		t.Cleanup(func() { assert.Check(t, server.Close()) })
		block = fmt.Sprintf("provider \"e2b\" {\n  api_key = %q\n  api_url = %q\n  sandbox_url = %q\n}\n", e2bfake.DefaultAPIKey, server.APIURL, server.SandboxURL)
	case Aliyun:
		binaries.Needs(t, "bwrap", "bubblewrap")
		cloud := aliyunfake.Start()
		t.Cleanup(cloud.Close)
		block = fmt.Sprintf("provider \"aliyun\" {\n  access_key_id = %q\n  access_key_secret = %q\n  account_id = \"1234567890123456\"\n  control_endpoint = %q\n  data_endpoint = %q\n}\n",
			cloud.Keys.AccessKeyID, cloud.Keys.AccessKeySecret, cloud.URL(), cloud.URL())
	case Daytona:
		binaries.Needs(t, "bwrap", "bubblewrap")
		server, err := daytonafake.Start(daytonafake.Options{Class: "vm"}) // which can pause
		assert.NilError(t, err)
		t.Cleanup(func() { assert.Check(t, server.Close()) })
		block = fmt.Sprintf("provider \"daytona\" {\n  api_key = %q\n  api_url = %q\n}\n", daytonafake.DefaultAPIKey, server.APIURL)
	default:
		return Real(t, doors)
	}
	return harness.Start(t, harness.Options{
		Config:  harness.Tenants + limits + doors + block,
		Plugins: map[string]string{provider: filepath.Join(binaries.Dir(t), "plugins", provider)},
	})
}
