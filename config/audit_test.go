package config_test

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
)

const aroundAudit = `
provider "p" {}
tenant "acme" { token_sha256 = ["1111111111111111111111111111111111111111111111111111111111111111"] }
`

func parseAudit(t *testing.T, text string) config.Audit {
	t.Helper()
	cfg, diags := config.Parse("/etc/sb/sandbox.hcl", []byte(text+aroundAudit))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	return cfg.Audit
}

func TestTheAuditLogIsInTheStateDirectoryUnlessToldOtherwise(t *testing.T) {
	for text, dir := range map[string]string{
		"":                              "/etc/sb/data/audit",
		"state = \"/var/lib/sb\"":       "/var/lib/sb/audit",
		"audit {}":                      "/etc/sb/data/audit",
		"audit { dir = \"log/audit\" }": "/etc/sb/log/audit",
		"audit { dir = \"/a/../b/\" }":  "/b",
	} {
		assert.Equal(t, parseAudit(t, text).Dir, filepath.FromSlash(dir), text)
	}
}

func TestTheAuditBlock(t *testing.T) {
	assert.DeepEqual(t, parseAudit(t, ""), config.Audit{Dir: "/etc/sb/data/audit", MaxMB: 256, KeepDays: 365})
	assert.DeepEqual(t, parseAudit(t, `audit {
  include_code  = true
  max_mb        = 10
  keep_days     = 0
  syslog        = "tcp://[::1]:601"
  webhook       = "http://siem:8080/x"
  webhook_token = "t"
}`), config.Audit{
		Dir: "/etc/sb/data/audit", IncludeCode: true, MaxMB: 10, Syslog: "tcp://[::1]:601", Webhook: "http://siem:8080/x", WebhookToken: "t",
	})
}

func TestAddressesForTheAuditLog(t *testing.T) {
	for _, address := range []string{"unix:///dev/log", "udp://127.0.0.1:514", "tcp://log.example.com:601"} {
		assert.Equal(t, parseAudit(t, `audit { syslog = "`+address+`" }`).Syslog, address)
	}
	for _, address := range []string{"unix://dev/log", "unix://", "udp://127.0.0.1", "tcp://:", "127.0.0.1:514", "tls://x:6514", "tcp://x:1/path"} {
		_, diags := config.Parse("x.hcl", []byte(`audit { syslog = "`+address+`" }`+aroundAudit))
		assert.Check(t, diags.HasErrors(), address)
	}
	for _, address := range []string{"ftp://x/", "https://", "https://user@x/", "x"} {
		_, diags := config.Parse("x.hcl", []byte(`audit { webhook = "`+address+`" }`+aroundAudit))
		assert.Check(t, diags.HasErrors(), address)
	}
	_, diags := config.Parse("x.hcl", []byte(`audit { webhook_token = "hunter2" }`+aroundAudit))
	assert.Assert(t, diags.HasErrors())
	assert.Check(t, is.Contains(diags.Error(), "no webhook"))
}
