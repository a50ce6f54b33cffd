// Package contexts keeps where brokers are and who asks them: names for pairs of an
// address and a token, in a file of the user's own.
//
// Not here: which of them a command takes, beside flags and the environment.
package contexts
