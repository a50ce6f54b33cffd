package provider

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// They say who gets the key and the code.
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
	assert.DeepEqual(t, names, []string{"api_url", "domain", "sandbox_url"})
}
