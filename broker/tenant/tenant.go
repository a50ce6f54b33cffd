// Package tenant knows who may use the broker: tenants, their tokens and which
// providers each may use. Quotas are not its business.
package tenant

import (
	"crypto/sha256"
	"crypto/subtle"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Tenant is who asks: a customer, a team, an application.
type Tenant struct {
	// Name is the first part of the IDs of the tenant's instances.
	Name string
	// Providers that the tenant may use, by label. Empty means all.
	Providers []string
	// Reuse says that an execution in no instance of its own may have a sandbox that an
	// earlier one of this tenant has left.
	Reuse bool
	// Network is the most that its instances may reach; nil for nothing. Nobody changes it. It
	// holds secrets.
	Network *sdk.NetworkPolicy
	// Since tells the tenant from others that had its name before it was removed:
	// it is the generation of the configuration in which the name has appeared.
	Since int
}

// Allows reports whether the tenant may use the provider with that label.
func (t Tenant) Allows(provider string) bool {
	return len(t.Providers) == 0 || slices.Contains(t.Providers, provider)
}

// Credentials are a tenant with the SHA-256 hashes of its tokens.
type Credentials struct {
	Tenant
	TokenSHA256 [][sha256.Size]byte
}

// Directory finds the tenant that a token belongs to. It does not change.
type Directory struct {
	tenants []Tenant
	keys    []key
}

type key struct {
	hash   [sha256.Size]byte
	tenant int
}

// NewDirectory makes a directory of these tenants. The configuration has
// already refused a hash that stands under two of them.
func NewDirectory(credentials []Credentials) *Directory {
	d := &Directory{}
	for i, c := range credentials {
		d.tenants = append(d.tenants, c.Tenant)
		for _, hash := range c.TokenSHA256 {
			d.keys = append(d.keys, key{hash: hash, tenant: i})
		}
	}
	return d
}

// Tenant returns the tenant of that name.
func (d *Directory) Tenant(name string) (Tenant, bool) {
	i := slices.IndexFunc(d.tenants, func(t Tenant) bool { return t.Name == name })
	if i < 0 {
		return Tenant{}, false
	}
	return d.tenants[i], true
}

// Authenticate returns the tenant whose token this is. Every known hash is
// compared, in constant time, so that the time it takes tells nothing about
// which of them matched or how nearly.
func (d *Directory) Authenticate(token string) (Tenant, bool) {
	hash := sha256.Sum256([]byte(token))
	found, who := 0, 0
	for _, k := range d.keys {
		equal := subtle.ConstantTimeCompare(hash[:], k.hash[:])
		who = subtle.ConstantTimeSelect(equal, k.tenant, who)
		found |= equal
	}
	if found == 0 || token == "" {
		return Tenant{}, false
	}
	return d.tenants[who], true
}
