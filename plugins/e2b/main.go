// Command e2b is the plugin of the provider for E2B, and for every cloud that speaks
// its protocol. The broker starts it.
package main

import (
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
)

func main() { serve.Serve(provider.New) }
