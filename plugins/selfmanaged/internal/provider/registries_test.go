package provider

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
)

func TestLoginsOfRegistriesAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		given []registryLogin
		field string
	}{
		"right":                   {[]registryLogin{{Host: "registry.example.com", Username: "a"}, {Host: "registry.example.com:5000", Username: "a", TokenHost: "auth.example.com:8443"}}, ""},
		"a path":                  {[]registryLogin{{Host: "registry.example.com/a"}}, "registry[0].host"},
		"an address":              {[]registryLogin{{Host: "https://registry.example.com"}}, "registry[0].host"},
		"a login in the host":     {[]registryLogin{{Host: "a:b@registry.example.com"}}, "registry[0].host"},
		"two names of one":        {[]registryLogin{{Host: "docker.io"}, {Host: "index.docker.io"}}, "registry[1].host"},
		"the same in capitals":    {[]registryLogin{{Host: "registry.example.com"}, {Host: "Registry.Example.com"}}, "registry[1].host"},
		"a user with a colon":     {[]registryLogin{{Host: "registry.example.com", Username: "a:b"}}, "registry[0].username"},
		"an address for tokens":   {[]registryLogin{{Host: "registry.example.com", TokenHost: "https://auth.example.com"}}, "registry[0].token_host"},
		"a path after the host":   {[]registryLogin{{Host: "registry.example.com", TokenHost: "auth.example.com/token"}}, "registry[0].token_host"},
		"a wildcard is not meant": {[]registryLogin{{Host: "*.example.com"}}, "registry[0].host"},
	} {
		t.Run(name, func(t *testing.T) {
			var found problems
			found.ofRegistries(test.given)
			if test.field == "" {
				assert.Equal(t, len(found), 0, "%v", found)
				return
			}
			assert.Equal(t, len(found), 1, "%v", found)
			assert.Equal(t, found[0].Field, test.field)
		})
	}
	logins := settings{Registries: []registryLogin{{Host: "docker.io", Username: "a", Password: "b", TokenHost: "Auth.docker.io"}}}.logins()
	assert.DeepEqual(t, logins, map[string]imagestore.Login{"index.docker.io": {Username: "a", Password: "b", TokenHost: "auth.docker.io"}})
}
