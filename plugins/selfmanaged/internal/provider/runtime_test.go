package provider

import (
	"maps"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
)

// makeProvider is newProvider, or the like for another runtime.
type makeProvider func(t *testing.T, given map[string]any) testProvider

// onEachRuntime runs a test on every runtime that the provider has, on both at once:
// much of it is waiting.
func onEachRuntime(t *testing.T, test func(t *testing.T, newProvider makeProvider)) {
	t.Run(runtimeRunsc, func(t *testing.T) {
		t.Parallel()
		test(t, newProvider)
	})
	t.Run(runtimeDocker, func(t *testing.T) {
		t.Parallel()
		test(t, onDocker(dockerengine.Find(t)))
	})
}

// inTheGuest is onEachRuntime for tests of the guest, or of the plugin above its runtimes: the guest
// is the same program on each. With -short it runs on runsc alone.
func inTheGuest(t *testing.T, test func(t *testing.T, newProvider makeProvider)) {
	if !testing.Short() {
		onEachRuntime(t, test)
		return
	}
	t.Run(runtimeRunsc, func(t *testing.T) { test(t, newProvider) })
}

// onDocker is newProvider on an engine, where nothing may be left either.
func onDocker(engine *dockerengine.Engine) makeProvider {
	return func(t *testing.T, given map[string]any) testProvider {
		t.Helper()
		all := map[string]any{"runtime": runtimeDocker, "docker_host": engine.Host, "image": dockerengine.Image}
		maps.Copy(all, given)
		var p testProvider
		t.Cleanup(func() { // after the provider was closed
			assert.Check(t, is.Len(engine.Containers(t, p.brokerID), 0), "containers are left")
		})
		p = newProvider(t, all)
		return p
	}
}
