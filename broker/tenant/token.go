package tenant

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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
