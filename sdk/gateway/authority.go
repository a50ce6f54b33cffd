package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// maxLeaves is how many certificates are kept.
const maxLeaves = 256

// authority signs the certificates of hosts whose TLS is ended here, for one instance. It is
// made at first use. Its key never leaves the process.
type authority struct {
	mu     sync.Mutex
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	pem    []byte
	leaf   *ecdsa.PrivateKey // of all hosts
	leaves map[string]*tls.Certificate
}

// The times of certificates. Clocks of instances may be a little behind.
const (
	authorityBefore = 24 * time.Hour
	authorityLife   = 90 * 24 * time.Hour // an instance lives 30 days at most
)

func (a *authority) certificate() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.make()
	return a.pem, err
}

// make is called with the lock held.
func (a *authority) make() error {
	if a.cert != nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	template, err := newTemplate("Sandbox broker: the way out of this sandbox " + rand.Text()[:8])
	if err != nil {
		return err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	a.key, a.leaf, a.leaves = key, leaf, map[string]*tls.Certificate{}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return nil
}

// forHost returns a certificate for a host.
func (a *authority) forHost(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.make(); err != nil {
		return nil, err
	}
	if c := a.leaves[host]; c != nil {
		return c, nil
	}
	template, err := newTemplate("")
	if err != nil {
		return nil, err
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf}
	a.leaves[host] = c
	return c, nil
}

func newTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-authorityBefore), NotAfter: now.Add(authorityLife),
	}, nil
}
