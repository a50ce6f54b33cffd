package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// brokerFlags say where a running broker is, and who asks.
type brokerFlags struct {
	URL   string `env:"SANDBOX_BROKER_URL" default:"http://127.0.0.1:9385" help:"Where the broker is."`
	Token string `env:"SANDBOX_BROKER_TOKEN" default:"demo-token" help:"A tenant's token."`

	CAFile   string `name:"ca-file" env:"SANDBOX_BROKER_CA_FILE" placeholder:"FILE" help:"Certificates (PEM) that the broker's must be signed by. Default: those that the system trusts."`
	CertFile string `name:"cert-file" env:"SANDBOX_BROKER_CERT_FILE" placeholder:"FILE" help:"A certificate (PEM) to show to the broker, if it wants one; with --key-file."`
	KeyFile  string `name:"key-file" env:"SANDBOX_BROKER_KEY_FILE" placeholder:"FILE" help:"The private key of that certificate."`
}

// newClient returns a client of the broker that trusts whom the flags say and shows what
// they say.
func (c *brokerFlags) newClient() (*client.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		text, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca-file: there is no certificate in %s that can be read (PEM)", c.CAFile)
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New("--cert-file and --key-file come together")
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	return client.New(c.URL, c.Token).Over(&http.Client{Transport: transport}), nil
}
