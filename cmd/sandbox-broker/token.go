package main

import (
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

type tokenCommand struct{}

// Run prints a fresh token and the line for the tenant block. Only the sum is
// kept in the configuration, so the token cannot be shown again.
func (tokenCommand) Run(term *terminal) error {
	token, sum := tenant.NewToken()
	_, err := fmt.Fprintf(term.out, "# The token, for the client. It is shown this once.\n%s\n\n# The line for the tenant block in sandbox.hcl.\ntoken_sha256 = [\"%x\"]\n", token, sum)
	return err
}
