package config

import (
	"net"
	"net/url"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Audit says where the log of all that happens is written, and how much.
type Audit struct {
	// Dir is an absolute path.
	Dir string `config:"dir"`
	// IncludeCode writes code itself beside its sum.
	IncludeCode bool `config:"include_code"`
	// MaxMB is the size, in units of 1,000,000 bytes, above which a file is
	// followed by another.
	MaxMB int64 `config:"max_mb"`
	// KeepDays is how long files are kept; 0 for ever.
	KeepDays int64 `config:"keep_days"`
	// Syslog is where the lines go too: unix:///path, udp://host:port or
	// tcp://host:port. "" for nowhere.
	Syslog string `config:"syslog"`
	// Webhook is the address that they are posted to; "" for none. WebhookToken
	// goes with them, if it is not empty.
	Webhook      string `config:"webhook"`
	WebhookToken string `config:"webhook_token"`
}

func auditSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "dir", Type: sdk.TypeString, Min: sdk.Bound(1),
			Description: "The directory of the files, relative to this file's; `audit` in the state directory unless given.",
		},
		{
			Name: "include_code", Type: sdk.TypeBoolean, Default: false,
			Description: "Write the code that is run, and not only its SHA-256 sum. Code may hold secrets.",
		},
		{
			Name: "max_mb", Type: sdk.TypeInteger, Default: int64(256), Min: sdk.Bound(1), Max: sdk.Bound(1 << 20),
			Description: "Megabytes after which another file begins, the same day.",
		},
		{
			Name: "keep_days", Type: sdk.TypeInteger, Default: int64(365), Min: sdk.Bound(0), Max: sdk.Bound(36500),
			Description: "Days after which a file is removed; 0 for never.",
		},
		{
			Name: "syslog", Type: sdk.TypeString, Min: sdk.Bound(1), Placeholder: "udp://127.0.0.1:514",
			Description: "Send the lines there too: unix:///dev/log, udp://host:port or tcp://host:port.",
		},
		{
			Name: "webhook", Type: sdk.TypeString, Secret: true, Min: sdk.Bound(1), Placeholder: "https://siem.example.com/ingest",
			Description: "Post the lines there too: an address that begins with https:// or http://. It is treated as a secret, since many such addresses are.",
		},
		{
			Name: "webhook_token", Type: sdk.TypeString, Secret: true, Min: sdk.Bound(1),
			Description: "A bearer token for the webhook.",
		},
	}
}

func (p *parser) readAudit(block *hclsyntax.Block) Audit {
	var audit Audit
	s := p.readLeaf(block, auditSchema())
	p.decode(s, &audit, block.DefRange())
	if a, given := s.setting("dir"); given {
		audit.Dir = absolute(p.documents[a.nameRange.Filename].dir(), audit.Dir)
	}
	if a, given := s.setting("syslog"); given && !isSyslog(audit.Syslog) {
		p.fail(a.expr.Range(), "Invalid value", "syslog is not an address such as unix:///dev/log, udp://host:514 or tcp://host:601.")
	}
	if _, given := s.setting("webhook"); given && !isWebhook(audit.Webhook) {
		p.fail(block.DefRange(), "Invalid value", "webhook is not an address that begins with https:// or http://. Credentials belong into webhook_token.")
	}
	if a, given := s.setting("webhook_token"); given && audit.Webhook == "" {
		p.fail(a.nameRange, "Setting without effect", "There is no webhook that webhook_token could be for.")
	}
	return audit
}

func isSyslog(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "unix":
		return u.Host == "" && len(u.Path) > 1
	case "udp", "tcp":
		_, port, err := net.SplitHostPort(u.Host)
		return err == nil && port != "" && u.Path == ""
	default:
		return false
	}
}

func isWebhook(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil
}
