package e2bfake

import (
	"context"
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
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// trustVariable names the file with the certificates that programs trust.
const trustVariable = "SSL_CERT_FILE"

// authority signs the certificates of all servers of this process.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

var theAuthority = sync.OnceValues(newAuthority)

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2bfake"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate, key}, err
}

// issue makes a certificate for the names below a domain, and for this machine.
func (a *authority) issue(domain string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: domain}, DNSNames: []string{"*." + domain}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}, a.certificate, key.Public(), a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// trust makes this process, and those that it starts, trust the authority. It comes
// before anything looks at the certificates of the system. The file has no name, so that
// nothing is left of it; it stays open.
func trust() error {
	a, err := theAuthority()
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("e2bfake", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})); err != nil {
		return err
	}
	return os.Setenv(trustVariable, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
}

// topDomain is what the domains of all servers end with. No name server knows it.
const topDomain = ".e2bfake.test"

// names are the addresses of servers by their domains.
var names sync.Map

// addresses of one server.
type addresses struct{ api, sandboxes string }

// DialContext reaches the servers of this process by their names, and all else as ever.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err == nil && strings.HasSuffix(host, topDomain) {
		label, domain, _ := strings.Cut(host, ".")
		if found, ok := names.Load(domain); ok {
			address = found.(addresses).sandboxes
			if label == "api" {
				address = found.(addresses).api
			}
		}
	}
	return (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
}
