package config

import (
	"net/url"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Previews says where previews have hosts of their own.
type Previews struct {
	// Scheme and Domain are those of the addresses, and Port too, if it is not empty.
	// Domain is empty where there are none.
	Scheme, Domain, Port string
}

func previewsSchema() sdk.Schema {
	return sdk.Schema{{
		Name: "address", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1), Placeholder: "https://*.preview.example.com",
		Description: "The address of previews, with * for what is different in each: `https://*.preview.example.com`. All hosts of the domain must lead to the broker.",
	}}
}

func (p *parser) readPreviews(block *hclsyntax.Block) Previews {
	s := p.readLeaf(block, previewsSchema())
	a, given := s.setting("address")
	if !given {
		return Previews{}
	}
	previews, ok := parsePreviews(s.Settings["address"].(string))
	if !ok {
		p.fail(a.expr.Range(), "Invalid value", "address is a scheme, *, a domain and perhaps a port, such as https://*.preview.example.com or http://*.localhost:9385.")
	}
	return previews
}

// maxPreviewDomain leaves room for the label before it: a name has 253 characters.
const maxPreviewDomain = 180

func parsePreviews(address string) (Previews, bool) {
	u, err := url.Parse(strings.Replace(address, "://*.", "://", 1))
	if err != nil || !strings.Contains(address, "://*.") || u.Scheme != "http" && u.Scheme != "https" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return Previews{}, false
	}
	domain := strings.ToLower(u.Hostname())
	if domain == "" || len(domain) > maxPreviewDomain || !hostName.MatchString(domain) || checkListen("x:"+portOr(u.Port(), "1")) != nil {
		return Previews{}, false
	}
	return Previews{Scheme: u.Scheme, Domain: domain, Port: u.Port()}, true
}

func portOr(port, other string) string {
	if port == "" {
		return other
	}
	return port
}
