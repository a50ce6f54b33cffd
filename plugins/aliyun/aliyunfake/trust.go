package aliyunfake

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"golang.org/x/sys/unix"
)

// trustVariable names the file with the certificates that programs trust.
const trustVariable = "SSL_CERT_FILE"

// trusted is that file, which must not be closed. It has no name, so that nothing is left
// of it.
var trusted *os.File

// Trust makes this process, and those that it starts, trust all fakes beside what they
// trust already. It comes before anything looks at the certificates of the system, which
// are read once.
func Trust() error {
	var certificates bytes.Buffer
	if file := os.Getenv(trustVariable); file != "" {
		before, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		certificates.Write(before)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler()) // all have the same one
	defer server.Close()
	err := pem.Encode(&certificates, &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	fd, failed := unix.MemfdCreate("aliyunfake", unix.MFD_CLOEXEC)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	trusted = os.NewFile(uintptr(fd), "aliyunfake")
	if _, err := trusted.Write(certificates.Bytes()); err != nil {
		return err
	}
	return os.Setenv(trustVariable, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
}
