package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// mockPlugin is the path of the mock provider, built once.
var mockPlugin string

func TestMain(m *testing.M) {
	// They wait more than they compute. -parallel says otherwise.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
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
