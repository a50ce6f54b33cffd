// Package oncluster tests the provider on a real cluster, which `make e2e-kubernetes` starts:
// with a kubelet, containerd and gVisor, as package e2e/cluster says. What needs no cluster is
// tested beside the code.
package oncluster
