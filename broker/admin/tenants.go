package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Tenant is one as it is in force.
type Tenant struct {
	Name string
	// Providers that it may use, by label; none for all.
	Providers []string
	// Tokens by TokenID, in the order of the file.
	Tokens []string
	// Quota has what limits it, by the names of the configuration: its own settings
	// and those for all tenants that it does not have. A duration is in seconds. What
	// is not in it has no limit.
	Quota map[string]any
}

// tokenIDLength is that of a TokenID, in hexadecimal digits: too few to find out
// anything of the token, and enough for none to be another's.
const tokenIDLength = 16

// TokenID names a token without telling it: the beginning of its sum.
func TokenID(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:])[:tokenIDLength] }

// Tenants are all tenants in the order of the files, with the revision of the
// configuration that has them.
func (c *Configurator) Tenants() (tenants []Tenant, revision string) {
	cfg := c.daemon.InForce().Config
	for _, t := range cfg.Tenants {
		tenants = append(tenants, tenantOf(t))
	}
	return tenants, cfg.Revision
}

// Tenant is one of them. The error is SB013.
func (c *Configurator) Tenant(name string) (t Tenant, revision string, err error) {
	cfg := c.daemon.InForce().Config
	i := slices.IndexFunc(cfg.Tenants, func(t config.Tenant) bool { return t.Name == name })
	if i < 0 {
		return Tenant{}, "", noSuchTenant()
	}
	return tenantOf(cfg.Tenants[i]), cfg.Revision, nil
}

func tenantOf(t config.Tenant) Tenant {
	shown := Tenant{Name: t.Name, Providers: t.Providers, Quota: quotaOf(t.Quota)}
	for _, sum := range t.TokenSHA256 {
		shown.Tokens = append(shown.Tokens, TokenID(sum))
	}
	return shown
}

// quotaOf leaves out what has no limit.
func quotaOf(q config.Quota) map[string]any {
	settings := map[string]any{}
	value := reflect.ValueOf(q)
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			continue
		}
		limit := value.Field(i).Interface()
		if d, ok := limit.(time.Duration); ok {
			limit = d.Seconds()
		}
		settings[value.Type().Field(i).Tag.Get("config")] = limit
	}
	return settings
}

func noSuchTenant() error {
	return sdk.Errorf(sdk.CodeNotFound, "there is no such tenant in the configuration")
}

func noSuchToken() error {
	return sdk.Errorf(sdk.CodeNotFound, "the tenant has no such token in the configuration")
}
