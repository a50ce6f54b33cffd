package store_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

// inMemory returns a directory that costs no waiting for a disk, where there is one.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "state-test-") //nolint:usetesting // that is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	return dir
}
