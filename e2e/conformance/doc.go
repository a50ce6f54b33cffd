// Package conformance holds no code but tests: the conformance suite of
// sdk/providertest on real plugins, by `sandbox-broker plugin verify`. It stands
// apart from the other tests over the real binaries because it takes minutes.
package conformance
