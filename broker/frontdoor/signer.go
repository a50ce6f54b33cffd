package frontdoor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Signer makes what a door gives its clients for one sandbox. It follows from what is
// signed, so that nobody has to keep it, and is the same after a restart.
type Signer struct{ key []byte }

// NewSigner returns one whose signatures no other purpose has.
func NewSigner(key []byte, purpose string) Signer {
	return Signer{sum(key, purpose)}
}

// Token is the signature of a text: 160 bits in hexadecimal.
func (s Signer) Token(text string) string { return s.Short(text, 20) }

// Short is as many bytes of that signature, in hexadecimal: 32 at most.
func (s Signer) Short(text string, bytes int) string {
	return hex.EncodeToString(sum(s.key, text)[:bytes])
}

func sum(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// Same compares what was sent with what it should be, in a time that tells nothing of it.
func Same(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }
