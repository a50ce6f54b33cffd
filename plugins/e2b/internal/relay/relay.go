// Package relay has the small Python program that connects to a port within a sandbox
// and passes its bytes through standard input and output. So a port needs no name of its
// own on the Internet, and may carry anything, not HTTP alone.
package relay

import (
	_ "embed"
	"strconv"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
)

//go:embed relay.py
var program string

const (
	// Ready is the first byte of output once there is a connection.
	Ready = 1
	// Closed is the exit code where nothing listens.
	Closed = 7
)

// Program is what envd is to start, with standard input open.
func Program(port uint16) envd.Program {
	return envd.Program{Cmd: "python3", Args: []string{"-I", "-c", program, strconv.Itoa(int(port))}, Cwd: "/"}
}
