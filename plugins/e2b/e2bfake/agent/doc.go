// Package agent is what runs inside a sandbox of the fake: envd, which has processes
// and files, on one Unix socket, and the code interpreter on another.
//
// It behaves as the originals were seen to, inconvenient parts included: a stream
// ends when the last holder of its pipes closes them, a time limit kills the direct
// child alone, output that nobody reads is thrown away, zero values are left out of
// JSON. Package e2bfake starts it and stands in front of it; it has no faults of its
// own to inject.
package agent
