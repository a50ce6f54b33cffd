package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func main() {
	p := &plugin{instances: map[string]map[string]string{}}
	if behave, ok := starts()[planned("start")]; ok {
		behave(p)
		return
	}
	p.serveAndGreet()
}

// planned is what the plan says about a call, "" for nothing.
func planned(call string) string {
	text, err := os.ReadFile(os.Args[0] + ".plan")
	if err != nil {
		return ""
	}
	plan := map[string]string{}
	if err := json.Unmarshal(text, &plan); err != nil {
		return ""
	}
	return plan[call]
}

// serveAndGreet is what a plugin does that means no harm.
func (p *plugin) serveAndGreet() {
	listener := listen()
	go p.serve(listener)
	greet(fmt.Sprintf("1|%d|unix|%s|grpc|", wire.ProtocolVersion, listener.Addr()))
	waitForTheEnd()
	os.Exit(0)
}

func listen() net.Listener {
	listener, err := net.Listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "s"))
	if err != nil {
		panic(err)
	}
	return listener
}

func greet(line string) { fmt.Println(line) }

// waitForTheEnd returns when the broker is gone or wants us gone.
func waitForTheEnd() {
	buf := make([]byte, 1)
	for {
		if _, err := os.Stdin.Read(buf); err != nil {
			return
		}
	}
}
