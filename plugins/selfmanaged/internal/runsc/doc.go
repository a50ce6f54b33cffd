// Package runsc starts gVisor sandboxes with the runsc binary: an OCI bundle, one
// `runsc run` process each, the guest as process 1 on its standard input and
// output. There is no daemon, and it works for an ordinary user too, with fewer
// limits.
//
// Everything it makes lies under one state directory and one cgroup tree, and a
// sandbox ends with the process that started it: by the end of the guest's input,
// by the parent-death signal if that does not help.
package runsc
