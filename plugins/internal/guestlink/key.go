package guestlink

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
)

// MinSecretBytes is the least length of the secret that keys are derived from.
const MinSecretBytes = 32

// authorityInfo stands before the scope where an authority is derived, so that the secret can
// be used for something else as well.
const authorityInfo = "sandbox-broker guestlink authority v1\x00"

// Authority is the key by which credentials of the plugin are signed. Pods are made with its
// public half, which is no secret. The scope is where the pods are, such as a namespace:
// another scope has another key, although both come from one secret.
func Authority(secret []byte, scope string) (ed25519.PrivateKey, error) {
	if len(secret) < MinSecretBytes {
		return nil, fmt.Errorf("the secret for keys of pods has %d bytes and needs %d", len(secret), MinSecretBytes)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, authorityInfo+scope, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key of an authority: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// encoding is strict, so that a key has one text.
var encoding = base64.RawStdEncoding.Strict()

// Public is the public half of a key as text, as the specification of a pod has it.
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
	return sign(template, template, key, key)
}

func sign(template, parent *x509.Certificate, key, by ed25519.PrivateKey) (tls.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// credential makes a key that the guest of one pod takes, and nobody else: a certificate of
// the authority has the pod's UID for its name.
//
// Nothing in it says until when it is good, and no guest looks: the key is new, is in no file,
// and opens a pod that ends before any date would, while the clock of a pod may be wrong.
func credential(authority ed25519.PrivateKey, pod string) (tls.Certificate, error) {
	if pod == "" {
		return tls.Certificate{}, errNoPod
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: pod}}
	return sign(template, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}}, key, authority)
}

// errNoPod is the error where the UID of a pod is empty.
var errNoPod = errors.New("the UID of the pod is missing")

// peerHas says whether the other side has proven that it has a key.
func peerHas(state tls.ConnectionState, key ed25519.PublicKey) bool {
	if len(state.PeerCertificates) == 0 {
		return false
	}
	theirs, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	return ok && theirs.Equal(key)
}

// peerMayUse says whether the other side has proven that it has a key which the authority
// itself has signed for the pod.
func peerMayUse(state tls.ConnectionState, authority ed25519.PublicKey, pod string) bool {
	if len(state.PeerCertificates) == 0 {
		return false
	}
	its := state.PeerCertificates[0]
	return its.Subject.CommonName == pod && its.SignatureAlgorithm == x509.PureEd25519 &&
		ed25519.Verify(authority, its.RawTBSCertificate, its.Signature)
}
