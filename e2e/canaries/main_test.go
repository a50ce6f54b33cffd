package canaries_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// mockPlugin is the path of the mock provider, built once.
var mockPlugin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

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
