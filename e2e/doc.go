// Package e2e tests the whole: the real broker binary, real plugin processes,
// real gVisor sandboxes, over REST and the command line. What one package
// promises is tested beside it; here stand the promises of the product.
//
// Package hostile below has the programs that try to do harm. Package cluster below has what
// runs on a real Kubernetes cluster, which `make test-all PART=cluster-e2e` starts for it.
//
// The tests need the binaries of `make build` and runsc (`make runsc`). Without
// them they are skipped, and fail in CI.
package e2e
