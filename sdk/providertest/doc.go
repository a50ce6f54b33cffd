// Package providertest is the conformance suite: it checks a provider against the
// contract in package sdk, over the same wire as the broker.
//
// An author runs it in a test of the provider:
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, New, providertest.WithSettings(map[string]any{"endpoint": url}))
//	}
//
// Each case is a subtest. `sandbox-broker plugin verify PATH` runs the same cases
// against the built executable, through Verify.
//
// A case passes, fails, or is skipped with a reason. What a provider does not
// claim (a capability, a language) is skipped; a case that passed has seen the
// provider do what it checks. Which sentence of the contract that is stands at
// the case's function, in the files named cases_*.go.
//
// Start with providertest.go. A case plays in a scene (scene.go), which is a process
// of the provider, and is judged by its trial (trial.go). What it does in an instance
// (instances.go) are methods of that, and of what has words of its own there: files,
// commands, contexts, an execution and its outcome. samples.go has the code that cases
// run in the provider's sandboxes. Starting processes is not done here: an Opener does
// it, and the SDK knows only the one in inprocess.go.
package providertest
