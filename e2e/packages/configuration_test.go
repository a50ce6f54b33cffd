package packages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// All configurations that packages, images and examples/compose bring, as they are used: beside
// the file that includes them, and with a tenant where they have none.
func TestTheConfigurationsThatAreShippedCanBeUsed(t *testing.T) {
	release := filepath.Join(repository(), "cmd", "release")
	inPackages := filepath.Join(release, "debian", "broker", "sandbox.hcl")
	tests := map[string][]string{
		"debian/self-managed": {inPackages, filepath.Join(release, "debian", "self-managed", "self_managed.hcl")},
		"compose/clouds": {
			filepath.Join(release, "images", "broker", "sandbox.hcl"), filepath.Join(repository(), "examples", "compose", "clouds", "sandboxes.hcl"),
		},
		"compose/gvisor": {
			filepath.Join(release, "images", "self-managed", "sandbox.hcl"), filepath.Join(repository(), "examples", "compose", "gvisor", "tenants.hcl"),
		},
	}
	clouds, err := filepath.Glob(filepath.Join(release, "debian", "cloud", "*.hcl"))
	assert.NilError(t, err)
	assert.Assert(t, len(clouds) == 4, "%v", clouds)
	for _, cloud := range clouds {
		tests["debian/"+filepath.Base(cloud)] = []string{inPackages, cloud}
	}
	broker := filepath.Join(binaries.Dir(t), "sandbox-broker")
	for name, files := range tests {
		t.Run(name, func(t *testing.T) {
			icmd.RunCommand(broker, append([]string{"config", "fmt", "--check"}, files...)...).Assert(t, icmd.Success)
			dir := t.TempDir()
			assert.NilError(t, os.Mkdir(filepath.Join(dir, "conf.d"), 0o755))
			tenant := "# none\n"
			for i, file := range files {
				text, err := os.ReadFile(file)
				assert.NilError(t, err)
				// What is elsewhere on a machine with the package.
				content := strings.NewReplacer("/usr/lib/sandbox-broker/plugins", filepath.Join(binaries.Dir(t), "plugins"),
					`file("/etc/sandbox-broker/`, `file("`+dir+"/").Replace(string(text))
				to := filepath.Join(dir, "sandbox.hcl")
				if i > 0 {
					to = filepath.Join(dir, "conf.d", filepath.Base(file))
				}
				assert.NilError(t, os.WriteFile(to, []byte(content), 0o600))
				if i > 0 && !strings.Contains(content, "\ntenant ") {
					tenant = demoTenant + "\n"
				}
			}
			assert.NilError(t, os.WriteFile(filepath.Join(dir, "conf.d", "tenant.hcl"), []byte(tenant), 0o600))
			for _, secret := range []string{"e2b.key", "daytona.key", "aliyun.secret"} {
				assert.NilError(t, os.WriteFile(filepath.Join(dir, secret), []byte("e2b_0123456789abcdef0123456789abcdef01234567\n"), 0o600))
			}
			icmd.RunCmd(icmd.Command(broker, "check", filepath.Join(dir, "sandbox.hcl")), icmd.WithEnv(append(os.Environ(), "E2B_API_KEY=e2b_0123456789abcdef0123456789abcdef01234567")...)).
				Assert(t, icmd.Success)
		})
	}
}
