package snapshot

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	secretSize = 32
	// maxSecretFile bounds what is read, in bytes.
	maxSecretFile = 1 << 10
)

// LoadSecret reads the secret that keys are derived from, out of a file of the broker's own,
// or makes it at the first start. Without the file no snapshot that there is can be opened.
func LoadSecret(path string) ([]byte, error) {
	text, err := privatefile.Read(path, maxSecretFile)
	switch {
	case err == nil:
		secret, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil || len(secret) != secretSize {
			return nil, fmt.Errorf("%s does not hold the secret of snapshots; put back the one that was there, or remove it: the snapshots that there are cannot be opened then", path)
		}
		return secret, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("secret of snapshots: %w", err)
	}
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it never fails
	if err := privatefile.Write(path, FormatSecret(secret)); err != nil {
		return nil, fmt.Errorf("secret of snapshots: %w", err)
	}
	return secret, nil
}

// FormatSecret returns what a file with the secret holds.
func FormatSecret(secret []byte) []byte {
	return []byte(base64.StdEncoding.EncodeToString(secret))
}

// keyOf is the key of a tenant, from the broker's secret by HKDF with SHA-256 (RFC 5869): who
// has one learns nothing of another's.
func (s *Service) keyOf(tenant string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, s.secret, nil, "sandbox-broker snapshots of the tenant "+tenant, sdk.SnapshotKeyBytes)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "derive the key of a tenant's snapshots: %w", err)
	}
	return key, nil
}
