// Package pidnamespace makes PID namespaces that cost next to nothing: process 1 of
// each shares the memory and the descriptors of the caller, and does nothing but wait.
//
// What runs in such a namespace is started by others, with setns. Programs that need
// no more than a program and its arguments are the business of package isolation.
package pidnamespace
