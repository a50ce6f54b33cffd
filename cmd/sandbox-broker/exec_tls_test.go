package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
)

func TestExecOverTLS(t *testing.T) {
	authority, dir := certtest.NewAuthority(t), t.TempDir()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, `{"status": "succeeded"}`)
		assert.Check(t, err)
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{authority.Issue("broker").TLS(t)},
		ClientCAs:    authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate, key := authority.Issue("client").Write(t, dir)
	ca := filepath.Join(dir, "ca.pem")
	assert.NilError(t, os.WriteFile(ca, authority.PEM, 0o644))

	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"with all that it takes":             {[]string{"--ca-file", ca, "--cert-file", certificate, "--key-file", key}, 0, ""},
		"trusting the system":                {[]string{"--cert-file", certificate, "--key-file", key}, remote.ExitNoAnswer, "certificate"},
		"without a certificate of its own":   {[]string{"--ca-file", ca}, remote.ExitNoAnswer, "certificate required"},
		"with a certificate without its key": {[]string{"--ca-file", ca, "--cert-file", certificate}, exitUsage, "come together"},
		"with a file that is not there":      {[]string{"--ca-file", filepath.Join(dir, "none")}, exitUsage, "--ca-file"},
		"with a file of something else":      {[]string{"--ca-file", key}, exitUsage, "no certificate in"},
		"with a key of something else":       {[]string{"--cert-file", certificate, "--key-file", ca}, exitUsage, "--cert-file"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runExec(t, "1", append([]string{"-", "--json", "--url", server.URL}, c.args...)...)
			assert.Equal(t, got.code, c.code, got.err)
			assert.Check(t, cmp.Contains(got.err, c.says))
		})
	}
}
