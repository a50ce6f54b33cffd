package oncluster_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// install installs packages, and returns what the installer said.
func (p process) install(t *testing.T, id string, language sdk.Language, requirements ...string) (sdk.ExecuteResult, string) {
	t.Helper()
	var r recorder
	result, err := p.InstallPackages(t.Context(), sdk.InstallPackagesRequest{
		InstanceID: id, Language: language, Requirements: requirements, Timeout: time.Minute, OutputLimit: 1 << 20,
	}, &r)
	assert.NilError(t, err)
	return result, r.out.String() + r.err.String()
}

// The index is where the plugin is, and no pod reaches it: each byte of a package comes
// through the plugin.
func TestPackagesComeThroughThePlugin(t *testing.T) {
	c := cluster.Find(t)
	index := packageindex.Start(t)
	for _, name := range []string{"first", "second", "third"} {
		index.AddWheel(name, "1.0", "value = 'from "+name+"'")
	}
	for _, reach := range []string{"pod", "api"} {
		t.Run("with reach = "+reach, func(t *testing.T) {
			dir, settings := t.TempDir(), given(c, c.Namespace(t, privileged), map[string]any{
				"packages": "on", "package_index": index.Simple(), "npm_registry": index.URL + "/", "reach": reach,
			})
			p := begin(t, dir, "packages", settings)
			id, other := create(t, p, nil), create(t, p, nil)

			result, said := p.install(t, id, sdk.Python, "first==1.0")
			assert.Equal(t, result.Status, sdk.StatusSucceeded, said)
			assert.Equal(t, p.run(t, id, sdk.Python, "import first; print(first.value)"), "from first\n")
			// The image has no npm, which the guest has looked for.
			_, err := p.InstallPackages(t.Context(), sdk.InstallPackagesRequest{InstanceID: id, Language: sdk.JavaScript, Requirements: []string{"left"}, Timeout: time.Minute}, &recorder{})
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
			assert.ErrorContains(t, err, "there is no npm")
			// Code asks by itself.
			assert.Check(t, is.Contains(p.run(t, id, sdk.Bash, "python3 -m pip install second"), "Successfully installed second-1.0"))
			assert.Equal(t, p.run(t, id, sdk.Python, "import first, second; print(second.value)"), "from second\n")

			result, said = p.install(t, other, sdk.Python, "absent")
			assert.Equal(t, result.Status, sdk.StatusFailed)
			assert.Check(t, is.Contains(said, "ERROR: "))
			assert.Equal(t, p.run(t, other, sdk.Python, "import importlib.util as i; print(i.find_spec('first'))"), "None\n")
			// Neither is reached by anything else in the pod, during an installation or not.
			assert.Equal(t, p.run(t, id, sdk.Bash, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo\n")

			// The next process goes on where this one is.
			second := begin(t, dir, "packages", settings)
			result, said = second.install(t, id, sdk.Python, "third")
			assert.Equal(t, result.Status, sdk.StatusSucceeded, said)
			assert.Equal(t, second.run(t, id, sdk.Python, "import first, second, third; print(third.value)"), "from third\n")
			for _, one := range []string{id, other} {
				assert.Check(t, second.Destroy(t.Context(), one))
			}
		})
	}
}
