// Command aliyun is the plugin for Aliyun AgentRun: sandboxes of the type Code
// Interpreter in the cloud of Aliyun. The broker starts it.
package main

import (
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
)

func main() { serve.Serve(provider.New) }
