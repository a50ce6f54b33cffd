package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	keySize = 32
	// keyPrefix lets secret scanners find a key that went where it should not.
	keyPrefix = "sbkey_"
)

// key is one key of a Keyring.
type key struct {
	id   string
	aead cipher.AEAD
}

// NewKey returns a random key, as it is written into a key file.
func NewKey() string {
	secret := make([]byte, keySize)
	_, _ = rand.Read(secret) // it ends the program rather than fail
	return keyPrefix + base64.RawURLEncoding.EncodeToString(secret)
}

// parseKey reads what NewKey wrote. Its errors do not repeat it.
func parseKey(text string) (key, error) {
	encoded, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return key{}, fmt.Errorf("does not begin with %s", keyPrefix)
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(secret) != keySize {
		return key{}, fmt.Errorf("is not %s and %d characters of base64url", keyPrefix, base64.RawURLEncoding.EncodedLen(keySize))
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, fmt.Errorf("is not a key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, fmt.Errorf("is not a key: %w", err)
	}
	// A name for the key that tells nothing about it.
	sum := sha256.Sum256(append([]byte("sandbox-broker key id\x00"), secret...))
	return key{id: hex.EncodeToString(sum[:4]), aead: aead}, nil
}
