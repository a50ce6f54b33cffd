package pluginhost

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-plugin"
)

// maxHandshakeLine bounds the first line of a plugin's standard output. A real
// one has some 100 bytes.
const maxHandshakeLine = 4 << 10

// readHandshake reads the line that a plugin introduces itself with,
//
//	CORE-VERSION|PROTOCOL-VERSION|unix|SOCKET|grpc|CERTIFICATE|MULTIPLEXING
//
// before go-plugin does: its own errors mix the plugin's words into ours. What it
// returns is for go-plugin: the first five fields and nothing else. A certificate
// makes go-plugin write to a TLS configuration that we do not have, which would
// end the broker.
func readHandshake(line string) (greeting string, refusal *LaunchError) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if refusal := checkHandshake(line, parts); refusal != nil {
		return "", refusal
	}
	return strings.Join(parts[:5], "|") + "\n", nil
}

func checkHandshake(line string, parts []string) *LaunchError {
	core, err := strconv.Atoi(parts[0])
	if len(parts) < 4 || err != nil {
		return notStarted("the plugin printed something else before its handshake; nothing may go to its standard output before it serves",
			fmt.Sprintf("%.200q", line))
	}
	if core != plugin.CoreProtocolVersion {
		return notStarted(fmt.Sprintf("the plugin speaks version %d of the go-plugin handshake, this broker version %d", core, plugin.CoreProtocolVersion))
	}
	version, err := strconv.Atoi(parts[1])
	if err != nil {
		return notStarted(fmt.Sprintf("the plugin's protocol version %.20q is not a number", parts[1]))
	}
	if version != wire.ProtocolVersion {
		return notStarted(fmt.Sprintf("the plugin speaks protocol version %d, this broker version %d; rebuild the plugin with a matching SDK", version, wire.ProtocolVersion))
	}
	if len(parts) < 5 || parts[4] != string(plugin.ProtocolGRPC) {
		return notStarted("the plugin does not speak gRPC")
	}
	if parts[2] != "unix" {
		return notStarted(fmt.Sprintf("the plugin listens on %.20q; only a unix socket is accepted", parts[2]))
	}
	if len(parts) > 5 && parts[5] != "" {
		return notStarted("the plugin wants TLS; a private unix socket is all that the broker offers")
	}
	return nil
}
