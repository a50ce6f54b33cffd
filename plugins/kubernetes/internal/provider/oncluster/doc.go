// Package oncluster tests the provider on a real cluster, which `make test-all PART=cluster` starts:
// with a kubelet, containerd and gVisor, as package e2e/cluster says. What needs no cluster is
// tested beside the code.
package oncluster
