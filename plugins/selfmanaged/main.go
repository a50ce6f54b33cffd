// Command self_managed is the plugin of the self-managed provider: gVisor
// sandboxes on this machine. The broker starts it.
package main

import (
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
)

func main() { serve.Serve(provider.New) }
