package config

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// What executions in no instance of their own get: always a fresh sandbox, or one that
// an earlier execution of the same tenant has left.
const (
	oneShotFresh  = "fresh"
	oneShotTenant = "tenant"
)

// tenantReader reads tenant blocks.
type tenantReader struct {
	parser    *parser
	providers []string
	tokens    *tokenReader
	quotas    *quotaReader
}

func (r *tenantReader) read(block *hclsyntax.Block) Tenant {
	tenant := Tenant{Name: block.Labels[0]}
	s := r.parser.readSection(r.withoutBlocks(block), tenantSchema(), block.DefRange())
	tenant.Quota = r.quotas.read(block, map[string]blockKind{
		"webhooks": {read: func(block *hclsyntax.Block) { tenant.Webhooks = r.parser.readWebhooks(block) }},
		blockNetwork: {read: func(block *hclsyntax.Block) {
			network := r.parser.readNetwork(block)
			tenant.Network = &network
		}},
	})
	tenant.Reuse = s.Settings["one_shot"] == oneShotTenant
	tenant.TokenSHA256 = r.tokens.read(fmt.Sprintf("tenant %q", tenant.Name), s)
	if a, ok := s.setting("providers"); ok {
		for i, label := range s.Settings["providers"].([]string) {
			switch {
			case slices.Contains(tenant.Providers, label):
				r.parser.fail(a.itemRange(i), "Provider named twice", "Remove one of the two.")
			case !slices.Contains(r.providers, label):
				r.parser.fail(a.itemRange(i), "Unknown provider", "This is not the label of a provider block. "+suggest(label, r.providers))
			default:
				tenant.Providers = append(tenant.Providers, label)
			}
		}
	}
	return tenant
}

// withoutBlocks is a tenant's block without what is to be a block in it.
func (r *tenantReader) withoutBlocks(block *hclsyntax.Block) *hclsyntax.Body {
	rest := *block.Body
	rest.Attributes = maps.Clone(rest.Attributes)
	for _, name := range []string{"quota", "webhooks"} {
		attr, given := rest.Attributes[name]
		if !given {
			continue
		}
		r.parser.fail(attr.NameRange, "Block expected", fmt.Sprintf("%s is a block: write it without the equals sign, %s { ... }.", name, name))
		delete(rest.Attributes, name)
	}
	return &rest
}

// DemoToken is the token of the tenant `demo` in the sandbox.hcl that comes
// with the broker. Everybody knows it.
const DemoToken = "demo-token"

// listensToOthers reports whether other machines reach what listens there.
func listensToOthers(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback()
}

// warnOfDemoToken warns when the well-known token works from other machines.
func (p *parser) warnOfDemoToken(cfg *Config) {
	toOthers := listensToOthers(cfg.Listen)
	if toOthers && slices.Contains(cfg.Admin.TokenSHA256, sha256.Sum256([]byte(DemoToken))) {
		for _, block := range p.blocks {
			if block.Type == "admin" {
				p.add(SeverityWarning, block.DefRange(), false, "Well-known token",
					"The administrator has the demo token, which everybody knows, and the broker listens to other machines. Make another with `sandbox-broker token`.")
			}
		}
	}
	for _, door := range cfg.FrontDoors {
		toOthers = toOthers || door.Listen != "" && listensToOthers(door.Listen)
	}
	if !toOthers {
		return
	}
	for _, tenant := range cfg.Tenants {
		if !slices.Contains(tenant.TokenSHA256, sha256.Sum256([]byte(DemoToken))) {
			continue
		}
		for _, block := range p.blocks {
			if block.Type == "tenant" && slices.Equal(block.Labels, []string{tenant.Name}) {
				p.add(SeverityWarning, block.DefRange(), false, "Well-known token",
					"This tenant has the demo token, which everybody knows, and the broker listens to other machines. Make another with `sandbox-broker token`.")
			}
		}
	}
}
