package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"
)

// The plugin's own descriptors, before go-plugin puts pipes in their place.
var (
	realStdout = os.Stdout
	realStderr = os.Stderr
)

func main() {
	mode := startMode()
	if strange, ok := strangeStarts()[mode]; ok {
		strange()
		return
	}
	switch mode {
	case "deaf":
		serveDeaf()
	case "liar":
		serveLies()
	default:
		serve.Serve(newProvider(mode))
	}
}

// startMode is what follows "mock_" in the executable's name, or MOCK_START.
func startMode() string {
	if mode, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "mock_"); ok {
		return mode
	}
	return os.Getenv("MOCK_START")
}
