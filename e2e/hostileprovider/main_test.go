package main_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// hostile and mock are the paths of the two plugins, built once.
var hostile, mock string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hostile")
	if err == nil {
		hostile, mock = filepath.Join(dir, "hostile"), filepath.Join(dir, "mock")
		err = build(hostile, ".")
	}
	if err == nil {
		err = build(mock, "../mockprovider")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Most of these tests wait for a time limit of the broker's. -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	flag.Parse()
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build(to, pkg string) error {
	cmd := exec.Command("go", "build", "-o", to, pkg)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
