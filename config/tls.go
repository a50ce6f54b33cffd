package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// TLS says how the REST API is encrypted. What the files hold was read with the
// configuration: when one of them changes, the configuration is another.
type TLS struct {
	// Certificate with the chain that comes with it and the private key.
	Certificate tls.Certificate
	// ClientCAs have signed the certificates that clients must show; nil when
	// clients need none.
	ClientCAs *x509.CertPool
}

// Equal reports whether the certificates are the same. nil stands for plain HTTP.
func (t *TLS) Equal(other *TLS) bool {
	if t == nil || other == nil {
		return t == other
	}
	// The private key is that of the public one in the certificate.
	return slices.EqualFunc(t.Certificate.Certificate, other.Certificate.Certificate, bytes.Equal) && t.ClientCAs.Equal(other.ClientCAs)
}

// maxCertificateFile bounds a file of certificates, in bytes: all authorities of
// the world together have a quarter of that.
const maxCertificateFile = 1 << 20

// readTLS returns nil when something is wrong with the block or its files.
func (p *parser) readTLS(block *hclsyntax.Block) *TLS {
	before := p.failures
	return p.readIdentity(block, p.readLeaf(block, tlsSchema()), "client_ca_file", before)
}

// readIdentity reads the files that a block names, the authorities by a setting of that name.
// before is how many mistakes there were before the block; with more it returns nil.
func (p *parser) readIdentity(block *hclsyntax.Block, s section, authoritiesFile string, before int) *TLS {
	dir := p.documents[block.TypeRange.Filename].dir()
	read := func(setting string, kind FileKind, readFile func(path string) ([]byte, error)) []byte {
		a, given := s.setting(setting)
		if !given {
			return nil
		}
		path := absolute(dir, s.Settings[setting].(string))
		content, err := p.reading.readBy(readFile, path, path, kind)
		if err != nil {
			p.fail(a.expr.Range(), "Unusable file", fmt.Sprintf("%s: %s.", setting, err))
		}
		return content
	}
	certificates := func(path string) ([]byte, error) { return readRegularFile(path, maxCertificateFile) }
	chain := read("cert_file", FileCertificate, certificates)
	key := read("key_file", FilePrivateKey, seal.ReadKeyFile)
	authorities := read(authoritiesFile, FileClientCA, certificates)
	if p.failures > before {
		return nil
	}

	t := &TLS{}
	var err error
	if t.Certificate, err = tls.X509KeyPair(chain, key); err != nil {
		a, _ := s.setting("cert_file")
		p.fail(a.expr.Range(), "Unusable certificate", fmt.Sprintf("cert_file and key_file do not go together: %s.", strings.TrimPrefix(err.Error(), "tls: ")))
		return nil
	}
	if a, given := s.setting(authoritiesFile); given {
		if t.ClientCAs, err = parseAuthorities(authorities); err != nil {
			p.fail(a.expr.Range(), "Unusable file", fmt.Sprintf("%s: %s.", authoritiesFile, err))
			return nil
		}
	}
	a, _ := s.setting("cert_file")
	p.warnOfDates(a.expr.Range(), t.Certificate.Leaf)
	return t
}

func parseAuthorities(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("there is no certificate in it that can be read (PEM)")
	}
	return pool, nil
}

// warnOfDates warns of a certificate that clients refuse today. It is no mistake:
// the broker's clock may be the one that is wrong.
func (p *parser) warnOfDates(rng hcl.Range, certificate *x509.Certificate) {
	const day = "2006-01-02 15:04 MST"
	switch now := time.Now(); {
	case now.After(certificate.NotAfter):
		p.add(SeverityWarning, rng, false, "Certificate out of date",
			fmt.Sprintf("It was valid until %s. Clients will refuse it.", certificate.NotAfter.UTC().Format(day)))
	case now.Before(certificate.NotBefore):
		p.add(SeverityWarning, rng, false, "Certificate not valid yet",
			fmt.Sprintf("It will be valid from %s. Clients will refuse it until then.", certificate.NotBefore.UTC().Format(day)))
	}
}
