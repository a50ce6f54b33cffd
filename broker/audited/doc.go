// Package audited stands between the broker and its providers and takes every call
// that has an effect to the audit log: before it is made, and when it is over. What
// is not in the log does not happen, since there is no other way to a provider.
//
// Start with Recorder, of which each provider has one. What a provider can do beyond
// the interfaces of package sdk does not reach it from here: a new method is either
// recorded in this package or listed as one that only looks (a test compares both
// lists with the client). How the log is written is package audit's.
package audited
