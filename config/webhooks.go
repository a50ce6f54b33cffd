package config

import (
	"encoding/base64"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Webhooks say where a tenant may have the results of its executions posted to: nowhere, if
// both lists are empty.
type Webhooks struct {
	// Allow are hosts with public addresses, AllowPrivate those that may have any. They
	// are host, host:port or *.domain, in lower case.
	Allow, AllowPrivate []string
	// Secret signs what is posted.
	Secret string
}

func webhooksSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "allow", Type: sdk.TypeList, Min: sdk.Bound(1),
			Description: "Hosts to which the results of detached executions may be posted, over HTTPS: `host`, `host:port`, or `*.domain` for all below a domain. Their addresses must be public.",
		},
		{
			Name: "allow_private", Type: sdk.TypeList, Min: sdk.Bound(1),
			Description: "The same for hosts that may have an address in the operator's own network or on this machine, over HTTPS or HTTP. Those where clouds keep what their machines may know are refused all the same.",
		},
		{
			Name: "secret", Type: sdk.TypeString, Required: true, Secret: true, Min: sdk.Bound(1), Placeholder: "whsec_...",
			Description: "What signs them, as the Standard Webhooks specification has it: `whsec_` and 24 to 64 random bytes in base64, such as from `echo whsec_$(head -c 32 /dev/urandom | base64)`. The receiver has the same.",
		},
	}
}

var hostEntry = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

func (p *parser) readWebhooks(block *hclsyntax.Block) Webhooks {
	var w Webhooks
	s := p.readLeaf(block, webhooksSchema())
	w.Allow, w.AllowPrivate = p.hostEntries(s, "allow"), p.hostEntries(s, "allow_private")
	if len(w.Allow)+len(w.AllowPrivate) == 0 && p.failures == 0 {
		p.fail(block.DefRange(), "Missing setting", "A block webhooks names hosts: write allow = [\"agent.example.com\"], or leave the block out.")
	}
	w.Secret, _ = s.Settings["secret"].(string)
	if w.Secret != "" && !isWebhookSecret(w.Secret) {
		p.fail(block.DefRange(), "Invalid value", "secret is not whsec_ and 24 to 64 bytes in base64.")
	}
	return w
}

func (p *parser) hostEntries(s section, name string) []string {
	a, given := s.setting(name)
	list, ok := s.Settings[name].([]string)
	if !given || !ok {
		return nil
	}
	var entries []string
	for i, entry := range list {
		host, port, err := net.SplitHostPort(entry)
		if err != nil {
			host, port = strings.Trim(entry, "[]"), "443"
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 || !hostEntry.MatchString(host) && net.ParseIP(host) == nil {
			p.fail(a.itemRange(i), "Invalid value", "This is not a host such as agent.example.com, agent.example.com:8443 or *.example.com.")
			continue
		}
		entries = append(entries, strings.ToLower(entry))
	}
	return entries
}

func isWebhookSecret(text string) bool {
	encoded, ok := strings.CutPrefix(text, "whsec_")
	secret, err := base64.StdEncoding.DecodeString(encoded)
	return ok && err == nil && len(secret) >= 24 && len(secret) <= 64
}
