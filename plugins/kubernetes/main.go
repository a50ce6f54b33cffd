// Command kubernetes is the plugin of the provider for Kubernetes clusters. The broker starts
// it.
package main

import (
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
)

func main() { serve.Serve(provider.New) }
