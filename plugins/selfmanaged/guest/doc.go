// Package guest is the program that is process 1 in each self-managed sandbox, and in
// each pod that is one.
//
// It serves the protocol in guestv1 and starts every process of user code. In a
// self-managed sandbox it does so over its standard input and output, and ends when
// its input does: a sandbox cannot outlive the plugin that holds the other end (Run).
// In a pod it listens on a port, and outlives the plugin (Listen). It runs as root of the sandbox
// with the few capabilities that this takes; user code runs as another user with
// none, in a PID namespace of its own, so it can neither see nor reach the guest,
// and killing the namespace kills everything that an execution ever started.
//
// Nothing here knows about runsc, pools or the broker.
package guest
