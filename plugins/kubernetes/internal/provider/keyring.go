package provider

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// keyring are the secrets that authorities come from: the first is that of new pods, the
// others are those of processes whose pods this one may have to look after.
type keyring struct {
	namespace string
	secrets   [][]byte
}

// secretFile is where a secret is kept in a state directory.
const secretFile = "guest-secret"

// openKeyring reads the secrets, or makes the first. given is the operator's, or empty.
func openKeyring(namespace, given, dir string, abandoned []string) (keyring, error) {
	k := keyring{namespace: namespace}
	if given != "" {
		k.add([]byte(given))
	}
	for _, from := range append([]string{dir}, abandoned...) {
		found, err := os.ReadFile(filepath.Join(from, secretFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return k, fmt.Errorf("read the secret of the pods' keys: %w", err)
		}
		for line := range strings.Lines(string(found)) {
			if secret, err := hex.DecodeString(strings.TrimSpace(line)); err == nil && len(secret) >= guestlink.MinSecretBytes {
				k.add(secret)
			}
		}
	}
	if len(k.secrets) == 0 {
		fresh := make([]byte, guestlink.MinSecretBytes)
		_, _ = rand.Read(fresh) // never fails
		k.add(fresh)
	}
	return k, k.save(dir, given)
}

func (k *keyring) add(secret []byte) {
	if !slices.ContainsFunc(k.secrets, func(other []byte) bool { return string(other) == string(secret) }) {
		k.secrets = append(k.secrets, secret)
	}
}

// save writes down the secrets that the operator has not given.
func (k *keyring) save(dir, given string) error {
	var text []byte
	for _, secret := range k.secrets {
		if string(secret) != given {
			text = append(hex.AppendEncode(text, secret), '\n')
		}
	}
	if err := ondisk.WriteFile(filepath.Join(dir, secretFile), text, 0o600); err != nil {
		return fmt.Errorf("keep the secret of the pods' keys: %w", err)
	}
	return nil
}

// own is the authority of new pods.
func (k keyring) own() (ed25519.PrivateKey, error) {
	return guestlink.Authority(k.secrets[0], k.namespace)
}

// of is the authority whose public half a pod was made with. ok is false if it is none of
// ours.
func (k keyring) of(public string) (authority ed25519.PrivateKey, ok bool) {
	for _, secret := range k.secrets {
		authority, err := guestlink.Authority(secret, k.namespace)
		if err == nil && guestlink.Public(authority) == public {
			return authority, true
		}
	}
	return nil, false
}
