package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Peers says how the broker and others on the same database reach each other. As with TLS,
// what the files hold was read with the configuration.
type Peers struct {
	// Listen is host:port.
	Listen string
	// Advertise is the address that the others are told; Listen unless given.
	Advertise string
	// Zone is where the broker is; "" for nowhere in particular.
	Zone string
	// Weight is how many of the new sessions that others pass on it gets, beside others; 0 for
	// none.
	Weight float64
	// Certificate with the chain that comes with it and the private key: it is shown as a
	// server and as a client.
	Certificate tls.Certificate
	// Authorities have signed the certificates of all of them.
	Authorities *x509.CertPool
	// SharedFile is the absolute path of the included file whose text is the same on all of
	// them; "" where each broker's configuration is its own. Config.Shared has the text.
	SharedFile string
}

// Equal reports whether they are the same. nil stands for none.
func (s *Peers) Equal(other *Peers) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.Listen == other.Listen && s.Advertise == other.Advertise && s.SharedFile == other.SharedFile &&
		s.Zone == other.Zone && s.Weight == other.Weight && s.Authorities.Equal(other.Authorities) &&
		slices.EqualFunc(s.Certificate.Certificate, other.Certificate.Certificate, bytes.Equal)
}

// PeersListen is where the broker listens for its peers; "" for nowhere.
func (c *Config) PeersListen() string {
	if c.Peers == nil {
		return ""
	}
	return c.Peers.Listen
}

// maxZone is in characters.
const (
	maxZone   = 64
	maxWeight = 1000
)

func peersSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "listen", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1),
			Description: "The address to listen on for other brokers, host:port, such as `10.0.0.5:9387`.",
		},
		{
			Name: "advertise", Type: sdk.TypeString, Min: sdk.Bound(1),
			Description: "The address at which the others reach this one, host:port; `listen` unless given. The certificate is for its host.",
		},
		{
			Name: "zone", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(maxZone),
			Description: "Where this broker is, such as `eu-1a`. A new session that has to go to another broker goes to one of the same zone where one has room.",
		},
		{
			Name: "weight", Type: sdk.TypeNumber, Min: sdk.Bound(0), Max: sdk.Bound(maxWeight), Default: float64(1),
			Description: "How many of the new sessions that others pass on this broker gets, compared with others that have as much room; 0 for none.",
		},
		{
			Name: "cert_file", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1),
			Description: "The file with this broker's certificate and those of its chain, in PEM, relative to this file's directory. It must be for a server and for a client.",
		},
		{
			Name: keyFileSetting, Type: sdk.TypeString, Required: true, Min: sdk.Bound(1),
			Description: "The file with its private key, in PEM, relative to this file's directory. Nobody but its owner may have access (chmod 600).",
		},
		{
			Name: "ca_file", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1),
			Description: "A file of certificates, in PEM: whoever has one that one of these has signed is a broker, and believed as such. Sign nothing else with it.",
		},
		{
			Name: sharedFileSetting, Type: sdk.TypeString, Min: sdk.Bound(1),
			Description: "One of the files that `include` brings in, relative to this file's directory: all brokers that name one have the same text in theirs, and a change of it comes in force on all of them or on none. It may hold the blocks " + quotedBlocks(sharedBlocks) + ". Without it each broker's configuration is its own.",
		},
	}
}

// readPeers returns nil when something is wrong with the block or its files.
func (p *parser) readPeers(block *hclsyntax.Block) (*Peers, section) {
	before := p.failures
	s := p.readLeaf(block, peersSchema())
	peers := &Peers{}
	peers.Listen, _ = s.Settings["listen"].(string)
	p.checkAddress(s, peers.Listen)
	peers.Advertise, _ = s.Settings["advertise"].(string)
	if a, given := s.setting("advertise"); given {
		if _, port, _ := net.SplitHostPort(peers.Advertise); isEverywhere(peers.Advertise) || port == "0" || checkListen(peers.Advertise) != nil {
			p.fail(a.expr.Range(), "Invalid value", "advertise is one address with a port, such as \"10.0.0.5:9387\": others connect to it.")
		}
	} else {
		peers.Advertise = peers.Listen
		if a, given := s.setting("listen"); given && p.failures == before && isEverywhere(peers.Listen) {
			p.fail(a.expr.Range(), "Address for others missing", "This is no address that others could connect to. Name one with advertise = \"host:port\", or listen on one.")
		}
	}
	peers.SharedFile = p.readSharedFile(s)
	peers.Zone, _ = s.Settings["zone"].(string)
	peers.Weight, _ = s.Settings["weight"].(float64)
	identity := p.readIdentity(block, s, "ca_file", before)
	if p.failures > before {
		return nil, s
	}
	peers.Certificate, peers.Authorities = identity.Certificate, identity.ClientCAs
	if err := checkPeer(peers); err != nil {
		a, _ := s.setting("cert_file")
		p.fail(a.expr.Range(), "Unusable certificate", fmt.Sprintf("cert_file is of no use among brokers: %s.", err))
		return nil, s
	}
	return peers, s
}

// checkPeer finds out at once what each of the others would refuse.
func checkPeer(p *Peers) error {
	leaf := p.Certificate.Leaf
	chain := x509.NewCertPool()
	for _, der := range p.Certificate.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			chain.AddCert(certificate)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: p.Authorities, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{usage}})
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
			continue // the broker's clock may be the one that is wrong; there is a warning
		}
		if err != nil {
			return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "x509: "))
		}
	}
	host, _, _ := net.SplitHostPort(p.Advertise)
	if leaf.VerifyHostname(host) != nil {
		return fmt.Errorf("it is not for the host of the address that the others are told")
	}
	return nil
}

// isEverywhere reports whether an address stands for all of the machine's.
func isEverywhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}
