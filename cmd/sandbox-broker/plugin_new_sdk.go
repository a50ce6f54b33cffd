package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/mod/modfile"
)

// sdkModule is the module that the SDK is in.
const sdkModule = "github.com/sandbox-broker/sandbox-broker"

// release is a version that the module proxy knows.
var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// cloneAt returns the absolute path of a clone of the broker's repository.
func cloneAt(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("%s is no clone of the broker's repository: %w", dir, err)
	}
	if is := modfile.ModulePath(text); is != sdkModule {
		return "", fmt.Errorf("%s is no clone of the broker's repository: its go.mod is that of %q", dir, is)
	}
	if _, err := os.Stat(filepath.Join(dir, "sdk", "provider.go")); err != nil {
		return "", fmt.Errorf("%s is no whole clone of the broker's repository: %w", dir, err)
	}
	return dir, nil
}

// cloneAround finds the clone that a directory lies in.
func cloneAround(dir string) (string, bool) {
	for {
		if clone, err := cloneAt(dir); err == nil {
			return clone, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}
