// Package soak changes the settings of a running broker again and again, right and
// wrong, while clients use it: no request may fail, nothing that is wrong may come
// in force, and nothing may be left behind. It also takes the time from a save to
// what requests see of it, which decides no test.
//
// The tests of `go test` are short. `make soak` does 2,000 changes and prints the
// figures of docs/operations.md. What a single change does belongs to e2e; that no
// secret comes out of it, to e2e/canaries.
package soak
