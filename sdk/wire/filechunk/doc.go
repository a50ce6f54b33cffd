// Package filechunk carries the bytes of files over gRPC without copying them on
// the way: each process between a client and a file would otherwise read a message
// into one buffer, copy its bytes into a second, and write them from a third. What
// crosses the wire is the same: messages of package providerv1.
//
// It belongs to the glue of the SDK and to whatever serves files by the provider's
// contract; authors of providers see readers and writers.
package filechunk
