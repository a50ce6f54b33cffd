package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

var sum = regexp.MustCompile(`^` + hexSum + `$`)

// tenantReader reads tenant blocks and remembers whose each token is.
type tenantReader struct {
	parser    *parser
	providers []string
	owners    map[[32]byte]tokenOwner
}

type tokenOwner struct {
	tenant string
	place  hcl.Range
}

func newTenantReader(p *parser, providers []string) *tenantReader {
	return &tenantReader{parser: p, providers: providers, owners: map[[32]byte]tokenOwner{}}
}

func (r *tenantReader) read(block *hclsyntax.Block) Tenant {
	s := r.parser.readLeaf(block, tenantSchema())
	tenant := Tenant{Name: block.Labels[0]}
	if a, ok := s.setting("token_sha256"); ok {
		for i, text := range s.Settings["token_sha256"].([]string) {
			if token, ok := r.token(tenant.Name, text, a.itemRange(i)); ok {
				tenant.TokenSHA256 = append(tenant.TokenSHA256, token)
			}
		}
	}
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

// token checks one item of token_sha256.
func (r *tenantReader) token(tenant, text string, rng hcl.Range) (token [32]byte, ok bool) {
	if !sum.MatchString(text) {
		r.parser.fail(rng, "Invalid token sum", fmt.Sprintf("A SHA-256 sum has 64 hexadecimal digits, and this has %d characters or others than digits and a to f. `sandbox-broker token` makes a token and its sum.", len([]rune(text))))
		return token, false
	}
	if _, err := hex.Decode(token[:], []byte(text)); err != nil {
		return token, false
	}
	if token == sha256.Sum256(nil) {
		r.parser.fail(rng, "Invalid token sum", "This is the sum of nothing at all: the token was empty when the sum was made.")
		return token, false
	}
	if owner, taken := r.owners[token]; taken {
		r.parser.fail(rng, "Token given twice", fmt.Sprintf("The same sum stands in tenant %q at %s already. A token belongs to one tenant.", owner.tenant, placeFrom(owner.place, rng)))
		return token, false
	}
	r.owners[token] = tokenOwner{tenant: tenant, place: rng}
	return token, true
}

// DemoToken is the token of the tenant `demo` in the sandbox.hcl that comes
// with the broker. Everybody knows it.
const DemoToken = "demo-token"

// warnOfDemoToken warns when the well-known token works from other machines.
func (p *parser) warnOfDemoToken(cfg *Config) {
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil || host == "localhost" || net.ParseIP(host).IsLoopback() {
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
