package config_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
)

const tlsBlock = "tls {\n  cert_file = \"tls.crt\"\n  key_file = \"tls.key\"\n}\n"

// loadIn loads a configuration whose file stands in dir.
func loadIn(dir, text string) (*config.Config, config.Diagnostics) {
	return config.Parse(filepath.Join(dir, "sandbox.hcl"), []byte(text+smallest))
}

func TestCertificatesAreReadWithTheConfiguration(t *testing.T) {
	dir, authority := t.TempDir(), certtest.NewAuthority(t)
	authority.Issue("one").Write(t, dir)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "clients.pem"), authority.PEM, 0o644))

	plain, diags := loadIn(dir, "")
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Check(t, plain.TLS == nil)
	one, diags := loadIn(dir, tlsBlock)
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Equal(t, one.TLS.Certificate.Leaf.Subject.CommonName, "one")
	assert.Check(t, one.TLS.ClientCAs == nil)
	mutual, diags := loadIn(dir, strings.Replace(tlsBlock, "}", "  client_ca_file = \"clients.pem\"\n}", 1))
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Check(t, mutual.TLS.ClientCAs.Equal(authority.Pool()))

	// They are among what is watched, and what they hold among what differs.
	kinds := map[config.FileKind]string{}
	for _, f := range mutual.Files() {
		kinds[f.Kind] = filepath.Base(f.Path)
	}
	assert.Check(t, is.DeepEqual(kinds, map[config.FileKind]string{
		config.FileMain: "sandbox.hcl", config.FileCertificate: "tls.crt", config.FilePrivateKey: "tls.key", config.FileClientCA: "clients.pem",
	}))
	again, _ := loadIn(dir, tlsBlock)
	assert.Check(t, again.TLS.Equal(one.TLS) && again.Revision == one.Revision)
	authority.Issue("two").Write(t, dir)
	two, diags := loadIn(dir, tlsBlock)
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Check(t, !two.TLS.Equal(one.TLS) && two.Revision != one.Revision)
	assert.Check(t, !one.TLS.Equal(nil) && !plain.TLS.Equal(one.TLS) && plain.TLS.Equal(nil) && !mutual.TLS.Equal(one.TLS))
}

func TestCertificatesThatAreOfNoUse(t *testing.T) {
	authority := certtest.NewAuthority(t)
	good := authority.Issue("one")
	for name, c := range map[string]struct {
		block          string
		certificate    string
		key            string
		others         os.FileMode
		summary, wants string
	}{
		"no files":                      {block: `tls {}`, summary: "Missing setting", wants: "cert_file"},
		"a certificate that is missing": {block: strings.Replace(tlsBlock, "tls.crt", "none", 1), summary: "Unusable file", wants: "cert_file: no such file"},
		"a key that everybody can read": {others: 0o044, summary: "Unusable file", wants: "key_file: others have access to it (mode 0644); chmod 600 it"},
		"the key of another":            {key: string(authority.Issue("two").Key), summary: "Unusable certificate", wants: "private key does not match public key"},
		"no PEM":                        {certificate: "hello", summary: "Unusable certificate", wants: "failed to find any PEM data in certificate input"},
		"half a file":                   {certificate: string(good.Certificate[:len(good.Certificate)/2]), summary: "Unusable certificate", wants: "certificate"},
		"a key that is empty":           {key: "\n", summary: "Unusable certificate", wants: "failed to find any PEM data in key input"},
		"the two exchanged":             {certificate: string(good.Key), key: string(good.Certificate), summary: "Unusable certificate", wants: "switched"},
		"authorities that are none": {
			block: strings.Replace(tlsBlock, "}", "  client_ca_file = \"tls.key\"\n}", 1), summary: "Unusable file", wants: "client_ca_file: there is no certificate in it",
		},
		"a block that is written as a setting": {block: "tls = true\n", summary: "Block expected", wants: "tls { ... }"},
		"a setting that there is not":          {block: strings.Replace(tlsBlock, "cert_file", "cert_fil", 1), summary: "Unknown setting", wants: `Did you mean "cert_file"?`},
	} {
		t.Run(name, func(t *testing.T) {
			dir, pair := t.TempDir(), good
			if c.certificate != "" {
				pair.Certificate = []byte(c.certificate)
			}
			if c.key != "" {
				pair.Key = []byte(c.key)
			}
			_, key := pair.Write(t, dir)
			assert.NilError(t, os.Chmod(key, 0o600|c.others))
			block := tlsBlock
			if c.block != "" {
				block = c.block
			}
			_, diags := loadIn(dir, block+"\n")
			assert.Assert(t, diags.HasErrors())
			text := diags.Error()
			assert.Check(t, is.Contains(text, c.summary))
			assert.Check(t, is.Contains(text, c.wants))
			for line := range strings.SplitSeq(string(pair.Key), "\n") {
				if len(line) > 40 && !strings.HasPrefix(line, "--") {
					assert.Check(t, !strings.Contains(text, line))
				}
			}
		})
	}
}

func TestACertificateThatClientsRefuseIsWarnedOf(t *testing.T) {
	authority := certtest.NewAuthority(t)
	for summary, change := range map[string]func(*x509.Certificate){
		"Certificate out of date":   func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) },
		"Certificate not valid yet": func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) },
	} {
		t.Run(summary, func(t *testing.T) {
			dir := t.TempDir()
			authority.Issue("one", change).Write(t, dir)
			cfg, diags := loadIn(dir, tlsBlock)
			assert.Assert(t, !diags.HasErrors() && len(diags) == 1, "%v", diags)
			assert.Equal(t, diags[0].Summary, summary)
			assert.Equal(t, diags[0].Start.Line, 2)
			assert.Assert(t, cfg.TLS != nil)
		})
	}
}
