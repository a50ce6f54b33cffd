// Package certtest makes certificates for tests: an authority of the test's own and
// what it signs, for this machine.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Authority signs certificates.
type Authority struct {
	// PEM is its own certificate.
	PEM []byte

	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

// Pair is a certificate and its private key, both in PEM.
type Pair struct{ Certificate, Key []byte }

// NewAuthority returns an authority that nobody else knows.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := a.template("authority of a test")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	a.certificate = template
	a.PEM = a.sign(template, a.key)
	return a
}

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	assert.Assert(a.t, pool.AppendCertsFromPEM(a.PEM))
	return pool
}

// Issue signs a certificate for localhost and 127.0.0.1, as a server and as a
// client. Changes are made to it before.
func (a *Authority) Issue(name string, changes ...func(*x509.Certificate)) Pair {
	a.t.Helper()
	template := a.template(name)
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, change := range changes {
		change(template)
	}
	key := newKey(a.t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	assert.NilError(a.t, err)
	return Pair{
		Certificate: a.sign(template, key),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
}

func (a *Authority) template(name string) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	assert.NilError(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NilError(t, err)
	return key
}

// TLS is the pair as a program uses it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	certificate, err := tls.X509KeyPair(p.Certificate, p.Key)
	assert.NilError(t, err)
	return certificate
}

// Write puts the pair into tls.crt and tls.key of a directory, each by a rename,
// and returns their paths.
func (p Pair) Write(t testing.TB, dir string) (certificate, key string) {
	t.Helper()
	certificate, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, content := range map[string][]byte{certificate: p.Certificate, key: p.Key} {
		assert.NilError(t, os.WriteFile(path+".new", content, 0o600))
		assert.NilError(t, os.Rename(path+".new", path))
	}
	return certificate, key
}
