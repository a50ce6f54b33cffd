// Package npm installs the clients of tests from their lock files, once for all tests.
package npm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

const (
	tries     = 3
	tryLimit  = 5 * time.Minute
	betweenBy = 2 * time.Second
)

// Install gives a project the packages that its lock file names, as node_modules, which other tests
// share: the project must not change them. Install scripts do not run. The test is skipped if there
// is no npm, or if npm cannot install them, and fails in CI.
func Install(t testing.TB, project string) {
	t.Helper()
	binaries.Needs(t, "npm", "npm")
	modules, err := Fetch(t.Context(), project)
	if err != nil {
		binaries.Missing(t, err.Error())
	}
	assert.NilError(t, os.Symlink(modules, filepath.Join(project, "node_modules")))
}

// Fetch installs the packages that a project's lock file names below .cache of the repository,
// unless they are there, and returns the path of the node_modules.
func Fetch(ctx context.Context, project string) (modules string, err error) {
	_, source, _, _ := runtime.Caller(0)
	return fetch(ctx, filepath.Join(filepath.Dir(source), "..", "..", ".cache", "npm"), project, runNPM)
}

func fetch(ctx context.Context, store, project string, install func(ctx context.Context, dir string) error) (modules string, err error) {
	files := map[string][]byte{"package.json": nil, "package-lock.json": nil}
	sum := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(project, name))
		if err != nil {
			return "", fmt.Errorf("read what to install: %w", err)
		}
		files[name] = text
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	place := filepath.Join(store, hex.EncodeToString(sum.Sum(nil))[:24])
	modules = filepath.Join(place, "node_modules")
	if _, err := os.Stat(place); err == nil {
		return modules, nil
	}
	if err := os.MkdirAll(store, 0o755); err != nil {
		return "", fmt.Errorf("install packages: %w", err)
	}
	// What is half installed is never seen at the place.
	part, err := os.MkdirTemp(store, "part.")
	if err != nil {
		return "", fmt.Errorf("install packages: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }()
	if err := os.Chmod(part, 0o755); err != nil { //nolint:gosec // sandboxes and ordinary users read it
		return "", fmt.Errorf("install packages: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(part, name), text, 0o644); err != nil { //nolint:gosec // they read this too
			return "", fmt.Errorf("install packages: %w", err)
		}
	}
	if err := again(ctx, func(ctx context.Context) error { return install(ctx, part) }); err != nil {
		return "", err
	}
	if err := os.Rename(part, place); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("install packages: %w", err)
	}
	return modules, nil
}

// CI installs what the lock file of a project names into the project alone, which may change it.
func CI(ctx context.Context, project string) error {
	return again(ctx, func(ctx context.Context) error { return runNPM(ctx, project) })
}

// again tries three times: a registry may fail for a moment.
func again(ctx context.Context, install func(ctx context.Context) error) (err error) {
	for try := range tries {
		limited, cancel := context.WithTimeout(ctx, tryLimit)
		err = install(limited)
		cancel()
		if err == nil || ctx.Err() != nil || try == tries-1 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(betweenBy):
		}
	}
	return err
}

func runNPM(ctx context.Context, dir string) error {
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, out)
	}
	return nil
}
