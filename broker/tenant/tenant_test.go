package tenant_test

import (
	"crypto/sha256"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

func directory() *tenant.Directory {
	hash := func(token string) [32]byte { return sha256.Sum256([]byte(token)) }
	return tenant.NewDirectory([]tenant.Credentials{
		{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{hash("acme-1"), hash("acme-2")}},
		{Tenant: tenant.Tenant{Name: "umbrella", Providers: []string{"e2b"}}, TokenSHA256: [][32]byte{hash("umbrella-1")}},
		// The hash of the empty token must not let anybody in.
		{Tenant: tenant.Tenant{Name: "careless"}, TokenSHA256: [][32]byte{hash("")}},
	})
}

func TestAuthenticate(t *testing.T) {
	for name, test := range map[string]struct{ token, want string }{
		"the first token of a tenant":        {"acme-1", "acme"},
		"a further token of the same tenant": {"acme-2", "acme"},
		"the token of another tenant":        {"umbrella-1", "umbrella"},
		"an unknown token":                   {"acme-3", ""},
		"a token with a space at its end":    {"acme-1 ", ""},
		"a token in other case":              {"ACME-1", ""},
		"no token":                           {"", ""},
		"the hash of a token instead of it":  {"6d3c3e0a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := directory().Authenticate(test.token)
			assert.Equal(t, got.Name, test.want)
			assert.Equal(t, ok, test.want != "")
		})
	}
}

func TestAnEmptyDirectoryLetsNobodyIn(t *testing.T) {
	_, ok := tenant.NewDirectory(nil).Authenticate("anything")
	assert.Assert(t, !ok)
}

func TestATenantByItsName(t *testing.T) {
	_, ok := tenant.NewDirectory(nil).Tenant("acme")
	assert.Check(t, !ok)
	_, ok = directory().Tenant("")
	assert.Check(t, !ok)
	who, ok := directory().Tenant("umbrella")
	assert.Check(t, ok && who.Name == "umbrella" && !who.Allows("self_managed"))
}

func TestAllows(t *testing.T) {
	everything := tenant.Tenant{Name: "acme"}
	onlyE2B := tenant.Tenant{Name: "umbrella", Providers: []string{"e2b"}}
	assert.Check(t, everything.Allows("self_managed"))
	assert.Check(t, onlyE2B.Allows("e2b"))
	assert.Check(t, !onlyE2B.Allows("self_managed"))
}
