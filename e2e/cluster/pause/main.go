// Command pause holds the namespaces of a pod, and does nothing else: the infrastructure
// container of a cluster that has no registry to take the usual one from.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	done := make(chan os.Signal, 1)
	signal.Notify(done, syscall.SIGINT, syscall.SIGTERM)
	<-done
}
