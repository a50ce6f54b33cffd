package main

import (
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

type tokenCommand struct {
	Form string `default:"broker" enum:"broker,e2b" help:"What the token looks like: broker, or e2b for E2B's SDKs."`
}

// Run prints a fresh token and the line for the tenant block. Only the sum is
// kept in the configuration, so the token cannot be shown again.
func (t tokenCommand) Run(term *terminal) error {
	make := tenant.NewToken
	if t.Form == "e2b" {
		make = tenant.NewE2BToken
	}
	token, sum := make()
	_, err := fmt.Fprintf(term.out, "# The token, for the client. It is shown this once.\n%s\n\n# The line for the tenant block in sandbox.hcl.\ntoken_sha256 = [\"%x\"]\n", token, sum)
	return err
}
