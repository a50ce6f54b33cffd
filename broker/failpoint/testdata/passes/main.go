// Command passes comes by a fail point three times.
package main

import "github.com/sandbox-broker/sandbox-broker/broker/failpoint"

func main() {
	for range 3 {
		failpoint.Hit(failpoint.CreateMade)
	}
}
