package config_test

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config/certtest"
)

const peersBlock = "peers {\n  listen = \"127.0.0.1:9387\"\n  cert_file = \"tls.crt\"\n  key_file = \"tls.key\"\n  ca_file = \"ca.pem\"\n}\n"

func TestPeersAreReadWithTheirCertificates(t *testing.T) {
	dir, authority := t.TempDir(), certtest.NewAuthority(t)
	authority.Issue("one").Write(t, dir)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), authority.PEM, 0o644))

	alone, diags := loadIn(dir, "")
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Equal(t, alone.PeersListen(), "")
	one, diags := loadIn(dir, peersBlock)
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Equal(t, one.PeersListen(), "127.0.0.1:9387")
	assert.Equal(t, one.Peers.Advertise, "127.0.0.1:9387")
	assert.Equal(t, one.Peers.Certificate.Leaf.Subject.CommonName, "one")
	assert.Check(t, one.Peers.Authorities.Equal(authority.Pool()))
	told, diags := loadIn(dir, strings.Replace(peersBlock, `"127.0.0.1:9387"`, "\":9387\"\n  advertise = \"localhost:9000\"", 1))
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Equal(t, told.Peers.Advertise, "localhost:9000")

	assert.Check(t, one.Peers.Zone == "" && one.Peers.Weight == 1)
	placed, diags := loadIn(dir, strings.Replace(peersBlock, "{\n", "{\n  zone = \"a\"\n  weight = 0.5\n", 1))
	assert.Equal(t, len(diags), 0, "%v", diags)
	assert.Check(t, placed.Peers.Zone == "a" && placed.Peers.Weight == 0.5 && !placed.Peers.Equal(one.Peers))

	again, _ := loadIn(dir, peersBlock)
	assert.Check(t, again.Peers.Equal(one.Peers) && !told.Peers.Equal(one.Peers) && !alone.Peers.Equal(one.Peers) && alone.Peers.Equal(nil))
	authority.Issue("two").Write(t, dir)
	two, _ := loadIn(dir, peersBlock)
	assert.Check(t, !two.Peers.Equal(one.Peers) && two.Revision != one.Revision)
}

func TestPeersThatCannotReachEachOther(t *testing.T) {
	authority, stranger := certtest.NewAuthority(t), certtest.NewAuthority(t)
	replaced := func(old, with string) string { return strings.Replace(peersBlock, old, with, 1) }
	for name, c := range map[string]struct {
		block          string
		issue          func(*x509.Certificate)
		by             *certtest.Authority
		summary, wants string
	}{
		"no files":                             {block: "peers {\n  listen = \"127.0.0.1:9387\"\n}\n", summary: "Missing setting", wants: "ca_file"},
		"no address":                           {block: replaced("  listen = \"127.0.0.1:9387\"\n", ""), summary: "Missing setting", wants: "listen"},
		"no port":                              {block: replaced(":9387", ""), summary: "Invalid value", wants: "listen is not an address with a port"},
		"a weight below zero":                  {block: replaced("{\n", "{\n  weight = -1\n"), summary: "Invalid value", wants: "weight"},
		"all addresses":                        {block: replaced("127.0.0.1:9387", ":9387"), summary: "Address for others missing", wants: "advertise"},
		"an advertised address that is none":   {block: replaced(":9387\"", ":9387\"\n  advertise = \"0.0.0.0:1\""), summary: "Invalid value", wants: "advertise is one address"},
		"any advertised port":                  {block: replaced(":9387\"", ":9387\"\n  advertise = \"localhost:0\""), summary: "Invalid value", wants: "advertise is one address"},
		"where the API is":                     {block: "listen = \"127.0.0.1:9387\"\n" + peersBlock, summary: "Invalid value", wants: "The broker listens there for something else"},
		"where the metrics are":                {block: "metrics {\n listen = \"127.0.0.1:9387\"\n}\n" + peersBlock, summary: "Invalid value", wants: "The broker listens there for something else"},
		"where a front door is":                {block: "front_door \"ragflow\" {\n listen = \"127.0.0.1:9387\"\n}\n" + peersBlock, summary: "Invalid value", wants: "What other brokers connect to listens there"},
		"a certificate of somebody else":       {by: stranger, summary: "Unusable certificate", wants: "signed by unknown authority"},
		"a certificate for another host":       {issue: func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(10, 0, 0, 1)}, nil }, summary: "Unusable certificate", wants: "not for the host"},
		"a certificate for servers alone":      {issue: func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, summary: "Unusable certificate", wants: "incompatible key usage"},
		"authorities that are none":            {block: replaced("ca.pem", "tls.key"), summary: "Unusable file", wants: "ca_file: there is no certificate in it"},
		"a block that is written as a setting": {block: "peers = true\n", summary: "Block expected", wants: "peers { ... }"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, by, block := t.TempDir(), authority, peersBlock
			if c.by != nil {
				by = c.by
			}
			issue := func(*x509.Certificate) {}
			if c.issue != nil {
				issue = c.issue
			}
			if c.block != "" {
				block = c.block
			}
			by.Issue("one", issue).Write(t, dir)
			assert.NilError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), authority.PEM, 0o644))
			_, diags := loadIn(dir, block)
			assert.Assert(t, diags.HasErrors())
			assert.Check(t, is.Contains(diags.Error(), c.summary))
			assert.Check(t, is.Contains(diags.Error(), c.wants))
		})
	}
}
