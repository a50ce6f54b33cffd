package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

func TestConformance(t *testing.T) {
	needBubblewrap(t)
	program, err := exec.LookPath("bwrap")
	assert.NilError(t, err)
	link := filepath.Join(t.TempDir(), "bwrap")
	assert.NilError(t, os.Symlink(program, link))
	providertest.Run(t, New,
		providertest.WithSettings(map[string]any{"bwrap": link, "memory_mb": 256}),
		providertest.WithMemoryLimit(256<<20),
		providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
			return func(context.Context) error { return os.Symlink(program, link) }, os.Remove(link)
		}),
	)
}
