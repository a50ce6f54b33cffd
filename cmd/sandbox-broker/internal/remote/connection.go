package remote

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/contexts"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// What holds where nothing else is said: the broker of `make run`.
const (
	defaultAddress = "http://127.0.0.1:9385"
	defaultToken   = "demo-token"
)

// Connection has the flags that say where a running broker is, and who asks.
type Connection struct {
	URL       string `aliases:"address" group:"Where the broker is" placeholder:"URL" help:"The broker's address. Default: SANDBOX_BROKER_URL, the context in force, http://127.0.0.1:9385."`
	Context   string `group:"Where the broker is" placeholder:"NAME" help:"The context to take address and token from. Default: SANDBOX_BROKER_CONTEXT, the current one." complete:"contexts"`
	TokenFile string `name:"token-file" group:"Where the broker is" placeholder:"FILE" help:"A file with the token, or - for standard input. Default: SANDBOX_BROKER_TOKEN, the context in force, demo-token."`
	Token     string `hidden:"" help:"Refused: everybody on the machine would see it."`

	CAFile   string `name:"ca-file" group:"Where the broker is" env:"SANDBOX_BROKER_CA_FILE" placeholder:"FILE" help:"Certificates (PEM) that the broker's must be signed by. Default: those that the system trusts."`
	CertFile string `name:"cert-file" group:"Where the broker is" env:"SANDBOX_BROKER_CERT_FILE" placeholder:"FILE" help:"A certificate (PEM) to show to the broker, if it wants one; with --key-file."`
	KeyFile  string `name:"key-file" group:"Where the broker is" env:"SANDBOX_BROKER_KEY_FILE" placeholder:"FILE" help:"The private key of that certificate."`
}

// target is where requests go, with what.
type target struct {
	contexts.Context
	// from is the name of the context, or empty.
	from string
}

// Client returns a client of the broker that flags, environment and contexts name, in this
// order. What is wrong with them is an error of the command line.
func (c *Connection) Client(console *Console) (*client.Client, error) {
	where, err := c.find(console)
	if err != nil {
		return nil, usageError{err}
	}
	transport, err := transportTo(where)
	if err != nil {
		return nil, usageError{err}
	}
	return client.New(where.Address, where.Token).Over(&http.Client{Transport: transport}), nil
}

// find looks for address, token and certificates. A context goes with its own address
// alone: no address from elsewhere is sent its token.
func (c *Connection) find(console *Console) (target, error) {
	if c.Token != "" {
		return target{}, errors.New("a token on the command line is seen by everybody on this machine: use SANDBOX_BROKER_TOKEN, --token-file FILE (- for standard input), or a context")
	}
	if c.URL != "" && c.Context != "" {
		return target{}, errors.New("name the broker once: both --url and --context are there")
	}
	where, err := c.context(console)
	if err != nil {
		return target{}, err
	}
	if where.from == "" {
		where.Address = cmp.Or(c.URL, address(console), defaultAddress)
	}
	if where.Token, err = c.token(console, where); err != nil {
		return target{}, err
	}
	where.CAFile = cmp.Or(c.CAFile, where.CAFile)
	if c.CertFile != "" || c.KeyFile != "" {
		where.CertFile, where.KeyFile = c.CertFile, c.KeyFile
	}
	return where, nil
}

// address is that of the environment, or empty.
func address(console *Console) string {
	return cmp.Or(console.Getenv("SANDBOX_BROKER_URL"), console.Getenv("SANDBOX_BROKER_ADDRESS"))
}

// context is the one in force, or none.
func (c *Connection) context(console *Console) (target, error) {
	name := c.Context
	if name == "" {
		if c.URL != "" {
			return target{}, nil
		}
		name = console.Getenv("SANDBOX_BROKER_CONTEXT")
		if address(console) != "" {
			if name != "" {
				return target{}, errors.New("name the broker once: both SANDBOX_BROKER_URL and SANDBOX_BROKER_CONTEXT are set")
			}
			return target{}, nil
		}
	}
	path, err := contexts.Path(console.Getenv)
	if err != nil {
		if name == "" {
			return target{}, nil
		}
		return target{}, err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return target{}, err
	}
	if name = cmp.Or(name, file.Current); name == "" {
		return target{}, nil
	}
	found, err := file.Get(name)
	return target{Context: found, from: name}, err
}

// token is that of the file, of the context that was named, of the environment, or of the
// context in force.
func (c *Connection) token(console *Console, where target) (string, error) {
	if c.TokenFile != "" {
		return readToken(console.In, c.TokenFile)
	}
	of := console.Getenv("SANDBOX_BROKER_TOKEN")
	if where.from == "" {
		return cmp.Or(of, defaultToken), nil
	}
	found := cmp.Or(of, where.Token)
	if c.Context != "" {
		found = cmp.Or(where.Token, of)
	}
	if found == "" {
		return "", fmt.Errorf("context %q has no token: set SANDBOX_BROKER_TOKEN, or give --token-file", where.from)
	}
	return found, nil
}

// longestToken is in bytes.
const longestToken = 4096

// readToken reads the token in a file, or in what in is where that is named "-".
func readToken(in io.Reader, name string) (string, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, longestToken+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > longestToken || strings.ContainsFunc(token, notOfAToken) {
		return "", errors.New("--token-file: what is there is no token: it must be one line without blanks")
	}
	return token, nil
}

func notOfAToken(r rune) bool { return r <= ' ' || r > '~' }

// transportTo trusts whom the target says and shows what it says.
func transportTo(where target) (*http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if where.CAFile != "" {
		text, err := os.ReadFile(where.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca-file: there is no certificate in %s that can be read (PEM)", where.CAFile)
		}
	}
	if (where.CertFile == "") != (where.KeyFile == "") {
		return nil, errors.New("--cert-file and --key-file come together")
	}
	if where.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(where.CertFile, where.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--cert-file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	return transport, nil
}
