package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// starts are what a plugin may do before, and instead of, serving.
func starts() map[string]func(*plugin) {
	says := func(format string, a ...any) func(*plugin) {
		return func(*plugin) {
			greet(fmt.Sprintf(format, a...))
			waitForTheEnd()
		}
	}
	socket := func(name string) string { return filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), name) }
	return map[string]func(*plugin){
		"garbage": func(*plugin) {
			printGarbage()
			waitForTheEnd()
		},
		"endless_line": func(*plugin) {
			for {
				if _, err := os.Stdout.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		},
		"silent":         func(*plugin) { waitForTheEnd() },
		"silent_deaf":    func(*plugin) { select {} },
		"exit":           func(*plugin) { os.Exit(3) },
		"killed":         func(*plugin) { signal(syscall.SIGKILL) },
		"stopped":        func(*plugin) { signal(syscall.SIGSTOP) },
		"panic":          func(*plugin) { panic("told to panic \x1b[31m") },
		"old_protocol":   says("1|7|unix|%s|grpc|", socket("s")),
		"old_core":       says("9|%d|unix|%s|grpc|", wire.ProtocolVersion, socket("s")),
		"net_rpc":        says("1|%d|unix|%s|netrpc|", wire.ProtocolVersion, socket("s")),
		"tcp":            says("1|%d|tcp|127.0.0.1:22|grpc|", wire.ProtocolVersion),
		"elsewhere":      says("1|%d|unix|/run/docker.sock|grpc|", wire.ProtocolVersion),
		"above":          says("1|%d|unix|%s/../../../run/docker.sock|grpc|", wire.ProtocolVersion, socket("s")),
		"no_socket":      says("1|%d|unix|%s|grpc|", wire.ProtocolVersion, socket("none")),
		"numbers":        says("1|-1|unix|%s|grpc|", socket("s")),
		"exhausted_line": says("1|%d|unix|%s|grpc|%s", wire.ProtocolVersion, socket("s"), bytes.Repeat([]byte("|"), 4000)),
		"certificate": func(p *plugin) { // go-plugin writes it to a configuration that is not there
			server := httptest.NewTLSServer(nil)
			listener := listen()
			go p.serve(listener)
			greet(fmt.Sprintf("1|%d|unix|%s|grpc|%s|true", wire.ProtocolVersion, listener.Addr(), base64.RawStdEncoding.EncodeToString(server.Certificate().Raw)))
			waitForTheEnd()
		},
		"link": func(*plugin) { // a socket of somebody else's, by a link
			if err := os.Symlink("/run/docker.sock", socket("link")); err != nil {
				panic(err)
			}
			says("1|%d|unix|%s|grpc|", wire.ProtocolVersion, socket("link"))(nil)
		},
		"mute": func(*plugin) { // takes the connection and says nothing
			listener := listen()
			go func() {
				for {
					if _, err := listener.Accept(); err != nil {
						return
					}
				}
			}()
			says("1|%d|unix|%s|grpc|", wire.ProtocolVersion, listener.Addr())(nil)
		},
		"babble": func(*plugin) { // takes the connection and says what is no HTTP/2
			listener := listen()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go func() {
						for {
							if _, err := conn.Write(bytes.Repeat([]byte("\x00\xff babble"), 1000)); err != nil {
								return
							}
						}
					}()
				}
			}()
			says("1|%d|unix|%s|grpc|", wire.ProtocolVersion, listener.Addr())(nil)
		},
		"second_line": func(p *plugin) { // greets twice, and prints on
			listener := listen()
			go p.serve(listener)
			greet(fmt.Sprintf("1|%d|unix|%s|grpc|", wire.ProtocolVersion, listener.Addr()))
			printGarbage()
			waitForTheEnd()
		},
		"late_greeting": func(p *plugin) { // after the broker has given up
			time.Sleep(time.Minute)
			p.serveAndGreet()
		},
		"deaf": func(p *plugin) { // serves, and goes on when it should end
			listener := listen()
			go p.serve(listener)
			greet(fmt.Sprintf("1|%d|unix|%s|grpc|", wire.ProtocolVersion, listener.Addr()))
			select {}
		},
	}
}
