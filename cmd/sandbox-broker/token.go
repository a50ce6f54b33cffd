package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// tokenPrefix lets secret scanners find a token that went where it should not.
const tokenPrefix = "sbk_"

type tokenCommand struct{}

// Run prints a fresh token and the line for the tenant block. Only the sum is
// kept in the configuration, so the token cannot be shown again.
func (tokenCommand) Run(term *terminal) error {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return fmt.Errorf("read random bytes: %w", err)
	}
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(random)
	_, err := fmt.Fprintf(term.out, "# The token, for the client. It is shown this once.\n%s\n\n# The line for the tenant block in sandbox.hcl.\ntoken_sha256 = [\"%x\"]\n",
		token, sha256.Sum256([]byte(token)))
	return err
}
