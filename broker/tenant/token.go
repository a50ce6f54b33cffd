package tenant

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// tokenPrefix lets secret scanners find a token that went where it should not.
const tokenPrefix = "sbk_"

// NewToken returns a token that nobody has and its sum, which is all that may be
// kept.
func NewToken() (token string, sum [sha256.Size]byte) {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails, or ends the process
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	return token, sha256.Sum256([]byte(token))
}

// NewE2BToken is NewToken in the form that E2B's SDKs take for a key: e2b_ and 40
// hexadecimal digits.
func NewE2BToken() (token string, sum [sha256.Size]byte) {
	random := make([]byte, 20)
	_, _ = rand.Read(random) // as above
	token = "e2b_" + hex.EncodeToString(random)
	return token, sha256.Sum256([]byte(token))
}
