package e2e_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// fails makes a mock provider fail at each start.
const fails = "  on_configure = \"{\\\"fail\\\":\\\"SB003\\\"}\"\n"

// adoptedOnTrial kills a broker that has an instance in a cloud and starts it again
// without that cloud: its provider "mock" does not start, or is not configured. Then a
// reload tries a "mock" that works, which finds the instance, beside a provider that
// does not work, and is refused. works is a change that makes it good.
func adoptedOnTrial(t *testing.T, configured bool) (b *harness.Broker, kept createdInstance, works func(string) string) {
	t.Helper()
	t.Setenv("MOCK_ACCOUNT", t.TempDir())
	cloud := "provider \"mock\" {\n  plugin = \"mock_cloud\"\n  persist = true\n  env = [\"MOCK_ACCOUNT\"]\n"
	bad := "provider \"bad\" {\n  plugin = \"mock\"\n" + fails + "}\n"
	b = harness.Start(t, harness.Options{
		Config: strings.Replace(harness.Tenants, "{ max_concurrent = 10000 }", "{\n  max_instances = 1\n}", 1) +
			"providers { active = \"other\" }\nprovider \"other\" {\n  plugin = \"mock\"\n}\n" + cloud + "}\n",
		Plugins: map[string]string{"mock_cloud": mockPlugin, "mock": mockPlugin},
	})
	kept = create(t, b, harness.Token, map[string]any{"session_id": "s", "provider": "mock", "ttl": 3000})
	b.Kill()
	b.WaitGone()
	before := ""
	if configured {
		before = cloud + fails + "}\n"
	}
	rewrite(t, b, with(cloud+"}\n", before))
	b.Restart()
	harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+kept.ID, harness.Token, nil), http.StatusServiceUnavailable, "SB009")
	rewrite(t, b, func(text string) string { return strings.Replace(text, before, "", 1) + cloud + "}\n" + bad })
	awaitLog(t, b, refused, 1)
	return b, kept, with(bad, "")
}

// What the provider of a refused reload has found belongs to the one that stays in
// force, and to those after it.
func TestWhatARefusedReloadHasAdoptedIsNotLost(t *testing.T) {
	b, kept, works := adoptedOnTrial(t, true)
	path := "/api/v1/instances/" + kept.ID
	code := map[string]any{"language": "mock", "code": `{"stdout": "works"}`}
	look(t, b, harness.Token, kept.ID)
	harness.Refused(t, b.Do(http.MethodPost, path+"/execute", harness.Token, code), http.StatusServiceUnavailable, "SB001")

	rewrite(t, b, works)
	awaitLog(t, b, inForce, 1)
	executes := func() {
		t.Helper()
		answer := b.Do(http.MethodPost, path+"/execute", harness.Token, code)
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	}
	executes()

	// The process that serves it lives on until it ends.
	rewrite(t, b, func(text string) string { return text[:strings.Index(text, "provider \"mock\"")] })
	awaitLog(t, b, inForce, 2)
	executes()
	assert.Equal(t, b.Do(http.MethodDelete, path, harness.Token, nil).Status, http.StatusNoContent)
	awaitLog(t, b, "the earlier process of the provider has ended", 2)
	create(t, b, harness.Token, map[string]any{"session_id": "s"})
}

func TestWhatOnlyARefusedReloadHasAdoptedIsLost(t *testing.T) {
	b, kept, _ := adoptedOnTrial(t, false)
	told := harness.Refused(t, b.Do(http.MethodGet, "/api/v1/instances/"+kept.ID, harness.Token, nil), http.StatusNotFound, "SB013")
	assert.Check(t, is.Contains(told.Detail, "its provider was removed"))
	create(t, b, harness.Token, map[string]any{"session_id": "s"}) // and counts no more
}

// A provider is removed whose process had taken over from one that died: what that one
// left ends with it, if it is killed.
func TestWhatWasLeftToAProviderIsLostWithIt(t *testing.T) {
	b, kept, works := adoptedOnTrial(t, true)
	rewrite(t, b, works)
	awaitLog(t, b, inForce, 1)
	rewrite(t, b, func(text string) string { return text[:strings.Index(text, "provider \"mock\"")] })
	awaitLog(t, b, inForce, 2)
	for _, p := range harness.Plugins(t, b.PID) {
		if strings.HasSuffix(p.Executable, "/mock_cloud") {
			assert.NilError(t, syscall.Kill(p.PID, syscall.SIGKILL))
		}
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := b.Do(http.MethodGet, "/api/v1/instances/"+kept.ID, harness.Token, nil)
		return poll.Compare(is.Equal(answer.Status, http.StatusNotFound))
	}, poll.WithTimeout(2*time.Minute))
	create(t, b, harness.Token, map[string]any{"session_id": "s"})
}
