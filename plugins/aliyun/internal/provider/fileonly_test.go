package provider

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// They say who gets signed requests and the code, and which of the machine's own identities the broker takes.
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
	assert.DeepEqual(t, names, []string{"control_endpoint", "data_endpoint", "identity", "oidc_provider_arn", "oidc_token_file", "role_arn", "role_name", "sts_endpoint"})
}
