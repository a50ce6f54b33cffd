// Package binaries finds what `make build` made, for tests that run the real
// thing.
package binaries

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Dir is the directory of the built binaries: $SANDBOX_BROKER_BIN, else bin/ of
// this repository. The test is skipped if it was not built, and fails in CI.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SANDBOX_BROKER_BIN")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "bin")
	}
	if _, err := os.Stat(filepath.Join(dir, "sandbox-guest")); err != nil {
		Missing(t, "the binaries are not built: run `make build` first")
	}
	return dir
}

// Runsc is the gVisor binary: on the PATH or in Dir. The test is skipped if
// there is none, and fails in CI.
func Runsc(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("runsc"); err == nil {
		return path
	}
	path := filepath.Join(Dir(t), "runsc")
	if _, err := os.Stat(path); err != nil {
		Missing(t, "there is no runsc: run `make runsc` first")
	}
	return path
}

// Rootfs is the root file system of `make rootfs`. The test is skipped if there is
// none, and fails in CI.
func Rootfs(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", ".cache", "rootfs")
	if _, err := os.Stat(path); err != nil {
		Missing(t, "there is no root file system: run `make rootfs` first, as root")
	}
	return path
}

// Needs skips the test where a program is not installed, and says which package of
// Debian has it. In CI it fails.
func Needs(t testing.TB, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		Missing(t, "there is no "+program+": apt-get install "+debianPackage)
	}
}

// Missing skips a test for what is not there, or fails it in CI.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}
