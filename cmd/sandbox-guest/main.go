// Command sandbox-guest is process 1 in each self-managed sandbox or pod; see package
// guest. Nobody starts it by hand.
package main

import "github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"

func main() { guest.Main() }
