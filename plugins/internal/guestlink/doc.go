// Package guestlink is the authenticated connection between a plugin and the guest of one
// pod, over a network where both have hostile neighbours.
//
// It is mutual TLS 1.3. The guest makes an Ed25519 key when it starts and prints the public half
// (Fingerprint.Line), which the plugin finds in the pod's log (ParseFingerprint). The plugin
// has an authority, derived from one secret (Authority), whose public half pods are made with;
// many may have the same. By it the plugin makes itself a credential for one pod, named for
// that pod's UID, which the guest has from Kubernetes: it opens no other pod. Nothing else in a
// certificate counts, and there is no chain of them.
//
// User code runs beside the guest and reaches its port on loopback. Listen is written for
// that: whoever has no credential gets a handshake, for a bounded time, and nothing else.
//
// Start with Dialer and Listener. What is spoken over a connection is not this package's
// matter.
package guestlink
