// Package returned makes JSON of what main returned, in the interpreter that ran it.
// It is the one place that says what becomes of values that JSON cannot express, so
// that code behaves alike wherever it runs: in the sandboxes of this machine, in a
// process of a remote service (package program) and in the kernel of a notebook.
//
// What JSON can express stays as it is. NaN and infinite numbers become null, and a
// line on standard error says so. Numbers and arrays of numpy become numbers and lists.
// All else is an error of the code.
//
// For JavaScript it finds main too, where the code only exports it.
package returned

import _ "embed"

var (
	//go:embed returned.py
	python []byte
	//go:embed returned.js
	javaScript []byte
)

// Python is source that defines express(value, limit): bytes of JSON, at most limit of
// them.
func Python() []byte { return python }

// JavaScript is source that defines express(value, limit), which gives a Buffer, and
// exportedMain(exports), which gives a function or undefined. It needs nothing but Node's
// globals.
func JavaScript() []byte { return javaScript }
