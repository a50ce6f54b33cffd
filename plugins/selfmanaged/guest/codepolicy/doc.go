// Package codepolicy looks for what an operator does not want in code before it
// runs, by the language's own grammar: Python with its own ast module, in the
// interpreter that runs the code afterwards (code_policy.py), JavaScript with a
// parser in Go.
//
// It is the second fence. Languages as dynamic as these can always be made to do
// what no analysis sees coming; what contains the code is the sandbox around it.
// bash has no rules: its whole purpose is to start other programs.
//
// Rules are data (defaults.go); how names are resolved is code. Nothing here runs
// anything or decides what happens to a finding.
package codepolicy
