package guestlink

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
)

// MinSecretBytes is the least length of the secret that keys are derived from.
const MinSecretBytes = 32

// keyInfo stands before the name of the pod where a key is derived, so that the secret can
// be used for something else as well.
const keyInfo = "sandbox-broker guestlink client key v1\x00"

// Key is the plugin's key for one pod. The name is the pod's alone, namespace and all: the
// key opens no other pod, although all keys come from one secret.
func Key(secret []byte, pod string) (ed25519.PrivateKey, error) {
	if len(secret) < MinSecretBytes {
		return nil, fmt.Errorf("the secret for keys of pods has %d bytes and needs %d", len(secret), MinSecretBytes)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, keyInfo+pod, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key of a pod: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// encoding is strict, so that a key has one text.
var encoding = base64.RawStdEncoding.Strict()

// Public is the public half of a key as text, as the pod's specification has it.
func Public(key ed25519.PrivateKey) string { return encodePublic(key.Public()) }

func encodePublic(key any) string { return encoding.EncodeToString(key.(ed25519.PublicKey)) }

// errNoKey is the error for text that is no key.
var errNoKey = errors.New("is no public key: 32 bytes in base64, without padding, are one")

// ParsePublic is the reverse of Public.
func ParsePublic(text string) (ed25519.PublicKey, error) {
	key, err := encoding.DecodeString(text)
	// The decoder skips line ends.
	if err != nil || len(key) != ed25519.PublicKeySize || len(text) != encoding.EncodedLen(len(key)) {
		return nil, errNoKey
	}
	return key, nil
}

// certificate wraps a key, for TLS takes no bare one. Nobody reads the rest.
func certificate(key ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// peerHas says whether the other side has proven that it has a key.
func peerHas(state tls.ConnectionState, key ed25519.PublicKey) bool {
	if len(state.PeerCertificates) == 0 {
		return false
	}
	theirs, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	return ok && theirs.Equal(key)
}
