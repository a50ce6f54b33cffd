// Command version prints the version of the guest's protocol.
package main

import (
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
)

func main() { fmt.Print(guest.Version()) }
