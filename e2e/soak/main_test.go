package soak_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

var (
	reloads = flag.Int("reloads", 60, "how many `times` the settings change under load, half of them wrong")
	saves   = flag.Int("saves", 10, "how many `times` it is measured how long a save takes to be in force, with and without load")

	// mockPlugin is the path of the mock provider, built once.
	mockPlugin string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var remove func()
	var err error
	if mockPlugin, remove, err = binaries.BuildMock(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	return m.Run()
}
