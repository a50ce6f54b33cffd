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
// Start with providertest.go. scene.go has what cases use, samples.go the code
// that they run in the provider's sandboxes. Starting processes is not done here:
// an Opener does it, and the SDK knows only the one in inprocess.go.
package providertest
