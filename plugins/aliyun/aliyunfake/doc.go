// Package aliyunfake is an AgentRun for tests: both planes on one address, with templates and
// sandboxes that live and die as the service's do, and code that really runs, under
// bubblewrap. It is written from the service's documentation and the official
// clients, and knows nothing of the provider.
//
// It checks every signature and header, and the limits of the service. Faults make it
// lie: see Fault.
package aliyunfake
