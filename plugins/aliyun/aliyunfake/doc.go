// Package aliyunfake is an AgentRun for tests: both planes on one address, with templates and
// sandboxes that live and die as the service's do, and code that really runs, under
// bubblewrap. It is written from the service's documentation and the official
// clients, and knows nothing of the provider: not even its types or its signatures.
//
// It is as strict as the service, and stricter where documents leave it open: HTTPS with
// HTTP/2 on offer, paths to the byte, signatures over all that was sent, bodies without a
// field more than is published, the limits of the service, clocks of idle sandboxes. Options
// are what the documents leave open; faults make it lie: see Fault.
package aliyunfake
