package gateway

import (
	"cmp"
	"io"
	"os"
)

// maxRoots bounds the file of the certificates that a machine believes.
const maxRoots = 2 << 20

// rootFiles are where machines have them; crypto/x509 looks there too.
var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
}

// SystemRoots are the certificates that this machine believes, in PEM: what programs of an
// instance need beside Certificates, where they have none of their own. Empty if there are none.
func SystemRoots() []byte {
	files := rootFiles
	if named := os.Getenv("SSL_CERT_FILE"); named != "" {
		files = []string{named}
	}
	for _, name := range files {
		if content := readBounded(name); len(content) > 0 {
			return content
		}
	}
	return nil
}

func readBounded(name string) []byte {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxRoots+1))
	if err != nil || len(content) > maxRoots {
		return nil
	}
	return content
}

// Environment is what programs of an instance need to find a proxy at an address, and the
// certificates in a file.
func Environment(proxy, certificates string) map[string]string {
	env := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		env[name] = "http://" + proxy
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		env[name] = "localhost,127.0.0.1,::1"
	}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "GIT_SSL_CAINFO"} {
		env[name] = cmp.Or(certificates, os.DevNull)
	}
	return env
}
