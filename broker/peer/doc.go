// Package peer passes calls on to other brokers on the same database, which are the peers of
// this one. Of each instance one broker alone is the owner; any broker takes any call, and
// passes on what concerns an instance of another.
//
// Start with Forwarder, which asks a peer over mutual TLS and gives the client its answer as
// it comes. ElsewhereError says that a call is to be passed on, and Hop is what a peer tells
// with it. Who finds the owner of an instance, and who answers what a peer has passed on, is
// in other packages: instance and api/rest.
package peer
