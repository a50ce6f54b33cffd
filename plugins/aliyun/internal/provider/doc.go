// Package provider is the provider of Aliyun AgentRun: it keeps the contract of
// package sdk with the sandboxes of that service.
//
// provider.go has what the broker asks first, settings.go what an operator can say,
// instances.go how sandboxes come and go, execute.go how code runs in them, and
// failures.go what the broker is told when the service fails. How the service is
// spoken to is the business of package agentrun.
package provider
