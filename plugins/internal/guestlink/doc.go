// Package guestlink is the authenticated connection between a plugin and the guest of one
// pod, over a network where both have hostile neighbours.
//
// It is mutual TLS 1.3 in which each side knows the other by its Ed25519 key; there is no
// certificate authority, and nothing in a certificate counts but its key. The plugin derives
// a key of its own for each pod from one secret (Key), and the pod is made with the public
// half, which is no secret. The guest makes its key when it starts and prints the public half
// (Fingerprint.Line), which the plugin finds in the pod's log (ParseFingerprint).
//
// User code runs beside the guest and reaches its port on loopback. Listen is written for
// that: whoever has no key gets a handshake, for a bounded time, and nothing else.
//
// Start with Dialer and Listener. What is spoken over a connection is not this package's
// matter.
package guestlink
