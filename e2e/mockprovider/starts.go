package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// strangeStarts are the start modes that never come to serve.
func strangeStarts() map[string]func() {
	return map[string]func(){
		"garbage": func() {
			fmt.Println("Welcome to the mock provider!")
			fmt.Println("Loading...")
			waitForTheEnd()
		},
		"flood": func() {
			fmt.Print(strings.Repeat("x", 1<<20))
			waitForTheEnd()
		},
		"exit": func() {
			fmt.Fprintln(os.Stderr, "mock: cannot find my configuration")
			os.Exit(3)
		},
		"silent": waitForTheEnd,
		"mute": func() {
			socket := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "mute")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				panic(err)
			}
			go func() {
				for {
					if _, err := listener.Accept(); err != nil {
						return
					}
				}
			}()
			shakeHands(1, wire.ProtocolVersion, "unix", socket, "grpc")
		},
		"oldprotocol": func() { shakeHands(1, 7, "unix", "/nowhere", "grpc") },
		"oldcore":     func() { shakeHands(9, wire.ProtocolVersion, "unix", "/nowhere", "grpc") },
		"netrpc":      func() { shakeHands(1, wire.ProtocolVersion, "unix", "/nowhere", "netrpc") },
		"tcp":         func() { shakeHands(1, wire.ProtocolVersion, "tcp", "127.0.0.1:22", "grpc") },
		"elsewhere":   func() { shakeHands(1, wire.ProtocolVersion, "unix", "/run/docker.sock", "grpc") },
		"nosocket": func() {
			shakeHands(1, wire.ProtocolVersion, "unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "none"), "grpc")
		},
	}
}

func shakeHands(core, protocol int, network, address, kind string) {
	fmt.Printf("%d|%d|%s|%s|%s|\n", core, protocol, network, address, kind)
	waitForTheEnd()
}

// waitForTheEnd is what serve.Serve does about standard input.
func waitForTheEnd() { _, _ = io.Copy(io.Discard, os.Stdin) }

// serveDeaf serves with a standard input that never ends, in place of the one
// that would end with the broker.
func serveDeaf() {
	read, write, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	if err := syscall.Dup3(int(read.Fd()), 0, 0); err != nil {
		panic(err)
	}
	serve.Serve(newProvider("deaf"))
	_ = write.Close() // keeps the pipe open until here
}
