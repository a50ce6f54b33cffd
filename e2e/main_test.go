package e2e_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
)

// mockPlugin is the path of the mock provider, built once.
var mockPlugin string

// Brokers for all tests that only use what they offer.
var (
	real   = harness.Shared{Options: func(t testing.TB) harness.Options { return realOptions(t, "") }}
	docker = harness.Shared{Options: func(t testing.TB) harness.Options { return realOptions(t, dockerSettings(t)) }}
	mock   = harness.Shared{Options: func(testing.TB) harness.Options { return mockOptions("") }}
)

func TestMain(m *testing.M) {
	e2bfake.Main()
	daytonafake.Main()
	if err := aliyunfake.Trust(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Most of these tests wait, whatever the number of cores. -parallel says otherwise.
	_ = flag.Set("test.parallel", fmt.Sprint(max(4, runtime.GOMAXPROCS(0))))
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var remove func()
	var err error
	if mockPlugin, remove, err = binaries.BuildMock(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	code := m.Run()
	for _, shared := range []*harness.Shared{&real, &docker, &mock} {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "a broker that tests shared:", err)
			code = max(code, 1)
		}
	}
	return code
}

// startReal starts a broker with the self-managed provider, for a test that does more
// to it than using it.
func startReal(t testing.TB, settings string) *harness.Broker {
	t.Helper()
	return harness.Start(t, realOptions(t, settings))
}

func realOptions(t testing.TB, settings string) harness.Options {
	if !strings.Contains(settings, "queue_timeout") {
		settings += "\n  queue_timeout = \"4m\"" // a slow machine makes no test fail
	}
	return harness.Options{
		Config: harness.Tenants + fmt.Sprintf("limits {\n  default_timeout = \"60s\"\n  create_timeout = \"5m\"\n}\nprovider \"self_managed\" {\n  runsc = %q\n  pool_size = 4\n  memory_mb = 256\n  %s\n}\n", binaries.Runsc(t), settings),
	}
}

// dockerSettings have the sandboxes of the self-managed provider made by a Docker
// Engine.
func dockerSettings(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("runtime = \"docker\"\n  docker_host = %q", dockerengine.Find(t).Host)
}

// startMock starts a broker with the mock provider, as startReal does.
func startMock(t testing.TB, settings string) *harness.Broker {
	t.Helper()
	return harness.Start(t, mockOptions(settings))
}

func mockOptions(settings string) harness.Options {
	return harness.Options{
		Config:  harness.Tenants + fmt.Sprintf("provider \"mock\" {\n  %s\n}\n", settings),
		Plugins: map[string]string{"mock": mockPlugin},
	}
}

// onBothRuntimes runs a test that only uses the broker, with sandboxes that runsc makes
// and with containers. With -short it runs with the former: the tests of the provider, and
// TestTheDockerRuntime, have containers in the gate.
func onBothRuntimes(t *testing.T, test func(t *testing.T, b *harness.Broker)) {
	onRuntimes(t, test, real.Broker, docker.Broker)
}

// startOnBothRuntimes is onBothRuntimes with brokers of the test's own.
func startOnBothRuntimes(t *testing.T, settings string, test func(t *testing.T, b *harness.Broker)) {
	onRuntimes(t, test,
		func(t testing.TB) *harness.Broker { return startReal(t, settings) },
		func(t testing.TB) *harness.Broker { return startReal(t, settings+"\n  "+dockerSettings(t)) })
}

// inTurnOnBothRuntimes is onBothRuntimes for a test that is a load by itself: one runtime
// after the other, and no other test beside it unless the caller is parallel.
func inTurnOnBothRuntimes(t *testing.T, test func(t *testing.T, b *harness.Broker)) {
	t.Run("runsc", func(t *testing.T) { test(t, real.Broker(t)) })
	if testing.Short() {
		return
	}
	t.Run("docker", func(t *testing.T) { test(t, docker.Broker(t)) })
}

func onRuntimes(t *testing.T, test func(t *testing.T, b *harness.Broker), runsc, docker func(t testing.TB) *harness.Broker) {
	t.Run("runsc", func(t *testing.T) {
		t.Parallel()
		test(t, runsc(t))
	})
	if testing.Short() {
		return
	}
	t.Run("docker", func(t *testing.T) {
		t.Parallel()
		test(t, docker(t))
	})
}

// destroyAfter destroys an instance when the test ends, if it is there: others share its
// broker.
func destroyAfter(t testing.TB, b *harness.Broker, id string) {
	t.Cleanup(func() { b.Do(http.MethodDelete, "/api/v1/instances/"+id, harness.Token, nil) })
}
