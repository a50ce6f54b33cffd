// Package agentrun has what the clients of the two planes of Aliyun AgentRun share:
// the objects of the service, its failures, and how answers are read.
//
// Below it, control speaks to the control plane (templates, the list of sandboxes)
// through the SDK of Aliyun, data to the data plane (sandboxes and what is in them),
// and sign has the signatures of both. What the objects are used for is the
// provider's business.
package agentrun
