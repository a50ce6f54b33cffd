package provider

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registryLogin is a block registry.
type registryLogin struct {
	Host      string `config:"host"`
	Username  string `config:"username"`
	Password  string `config:"password"`
	TokenHost string `config:"token_host"`
}

// maxRegistries is how many logins there may be.
const maxRegistries = 50

func registryField() sdk.Field {
	return sdk.Field{
		Name: "registry", Type: sdk.TypeBlock, Repeated: true, FileOnly: true, Max: sdk.Bound(maxRegistries),
		Label: "Registry", Description: "A login for a registry of images that does not give its images to everybody, for templates. It is used for the images of that registry alone, over HTTPS alone (but for localhost), and never sent elsewhere.",
		Fields: sdk.Schema{
			{Name: "host", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1), Max: sdk.Bound(255), Label: "Host", Description: "The registry as the templates name it in from: host, or host:port.", Placeholder: "registry.example.com"},
			{Name: "username", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1), Max: sdk.Bound(1000), Label: "User", Description: "Whom the registry knows."},
			{Name: "password", Type: sdk.TypeString, Required: true, Secret: true, Min: sdk.Bound(1), Max: sdk.Bound(8192), Label: "Password", Description: "Of the user, or a token in its place.", Placeholder: `env("REGISTRY_PASSWORD")`},
			{Name: "token_host", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(255), Label: "Host of tokens", Description: "The one other host that may be told the password: where the registry has its tokens made. A build that fails for want of it names the host.", Placeholder: "auth.registry.example.com"},
		},
	}
}

// ofRegistries finds what is wrong with the blocks registry.
func (p *problems) ofRegistries(all []registryLogin) {
	seen := map[string]bool{}
	for i, r := range all {
		name, err := imagestore.RegistryName(r.Host)
		_, tokenErr := imagestore.RegistryName(cmp.Or(r.TokenHost, r.Host))
		switch {
		case err != nil:
			p.addf(fmt.Sprintf("registry[%d].host", i), "%s", err)
		case seen[name]:
			p.addf(fmt.Sprintf("registry[%d].host", i), "has a login already, in a block above")
		case strings.ContainsRune(r.Username, ':'):
			p.addf(fmt.Sprintf("registry[%d].username", i), "must not have a colon, which ends the name of a user")
		case tokenErr != nil:
			p.addf(fmt.Sprintf("registry[%d].token_host", i), "%s", tokenErr)
		}
		seen[name] = true
	}
}

// logins are those of the blocks registry, which were validated.
func (s settings) logins() map[string]imagestore.Login {
	all := map[string]imagestore.Login{}
	for _, r := range s.Registries {
		if name, err := imagestore.RegistryName(r.Host); err == nil {
			all[name] = imagestore.Login{Username: r.Username, Password: r.Password, TokenHost: strings.ToLower(r.TokenHost)}
		}
	}
	return all
}
