package provider

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// They say which programs the broker's user runs, which of this machine's files sandboxes see, and which addresses of its network are fetched, and who is told a password.
// Who adds a setting of this kind adds it here; an administrator's token must not
// change it.
func TestSettingsThatAnAdministratorsTokenCannotChange(t *testing.T) {
	var names []string
	for _, f := range schema() {
		if f.FileOnly {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	assert.DeepEqual(t, names, []string{"docker_host", "docker_runtime", "guest", "image", "npm_registry", "package_index", "registry", "rootfs", "runsc", "template_dir", "volume_dir", "wheel_dir"})
}
