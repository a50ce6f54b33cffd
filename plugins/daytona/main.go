// Command daytona is the plugin of the provider for Daytona, hosted or on machines of your
// own. The broker starts it.
package main

import (
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
)

func main() { serve.Serve(provider.New) }
