// Package preview makes the tokens of preview links: who has such a link reaches
// one port of one instance until it expires, without a token of the tenant.
//
// A token says what it is for and is signed; the broker keeps no list of them. It
// knows nothing of routes and instances.
package preview

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
)

// KeySize is the length of a key, in bytes.
const KeySize = 32

// MaxToken is the longest token that Verify looks at, in bytes.
const MaxToken = 1024

// ErrInvalid is what Verify says of a token that is not one, or not any more. It
// does not say which.
var ErrInvalid = errors.New("the preview link is not valid, or has expired")

// Grant is what a link is for.
type Grant struct {
	Tenant     string    `json:"t"`
	InstanceID string    `json:"i"`
	Port       uint16    `json:"p"`
	Expires    time.Time `json:"e"`
}

// Signer makes tokens and knows them again.
type Signer struct{ key []byte }

// NewSigner returns a signer with a key of KeySize bytes.
func NewSigner(key []byte) (*Signer, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("the key for preview links has %d bytes instead of %d", len(key), KeySize)
	}
	return &Signer{key: key}, nil
}

var encoding = base64.RawURLEncoding.Strict()

// Sign returns the token of a grant. It can stand in a URL as it is.
func (s *Signer) Sign(g Grant) (string, error) {
	payload, err := json.Marshal(g)
	if err != nil {
		return "", fmt.Errorf("write preview token: %w", err)
	}
	token := encoding.EncodeToString(append(s.sum(payload), payload...))
	if len(token) > MaxToken {
		return "", fmt.Errorf("write preview token: it would have %d bytes", len(token))
	}
	return token, nil
}

// Verify returns what a token is for, or ErrInvalid. Nothing of a token is parsed
// before its signature has proved to be ours.
func (s *Signer) Verify(token string, now time.Time) (Grant, error) {
	if len(token) > MaxToken || strings.ContainsAny(token, "\r\n") { // the decoder skips those
		return Grant{}, ErrInvalid
	}
	text, err := encoding.DecodeString(token)
	if err != nil || len(text) < sha256.Size {
		return Grant{}, ErrInvalid
	}
	if !hmac.Equal(text[:sha256.Size], s.sum(text[sha256.Size:])) {
		return Grant{}, ErrInvalid
	}
	var g Grant
	if err := json.Unmarshal(text[sha256.Size:], &g); err != nil || !now.Before(g.Expires) {
		return Grant{}, ErrInvalid
	}
	return g, nil
}

// purpose keeps signatures apart from any that the key may be used for later.
const purpose = "sandbox-broker preview 1\n"

func (s *Signer) sum(payload []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(purpose))
	mac.Write(payload)
	return mac.Sum(nil)
}

// LoadKey reads a key from a file of the broker's own, or makes it at the first
// start. To remove the file and start anew makes all links invalid.
func LoadKey(path string) ([]byte, error) {
	text, err := privatefile.Read(path, maxKeyFile)
	switch {
	case err == nil:
		key, err := ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("%s %w; remove it, and links to previews become invalid", path, err)
		}
		return key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("key for preview links: %w", err)
	}
	key := NewKey()
	if err := privatefile.Write(path, FormatKey(key)); err != nil {
		return nil, fmt.Errorf("key for preview links: %w", err)
	}
	return key, nil
}

// maxKeyFile bounds what is read, in bytes.
const maxKeyFile = 1 << 10

// FormatKey returns what a file with the key holds.
func FormatKey(key []byte) []byte { return []byte(encoding.EncodeToString(key)) }

// ParseKey reads what FormatKey has written.
func ParseKey(text []byte) ([]byte, error) {
	key, err := encoding.DecodeString(string(text))
	if err != nil || len(key) != KeySize {
		return nil, errors.New("does not hold a key")
	}
	return key, nil
}

// NewKey returns a random key.
func NewKey() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // it never fails
	return key
}
