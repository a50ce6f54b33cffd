package tutorial_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
)

const root = "../.."

// shortened are commands of the page that take minutes, and what is run in their
// place: all of either runs elsewhere in `make test`.
var shortened = map[string]string{
	"go test ./...": "go test -run 'TestTheSandboxHolds|TestConformance/(description|schema|execute)' ./...",
	"sandbox-broker plugin verify plugins/bubblewrap": "sandbox-broker plugin verify plugins/bubblewrap --run '^(description|schema|execute|labels)/'",
}

func TestTheTutorialCanBeWalkedFromACleanClone(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("bubblewrap is not installed (Debian: apt install bubblewrap)")
	}
	page, err := markdown.Read(filepath.Join(root, "docs", "writing-a-provider.md"))
	assert.NilError(t, err)
	clone := filepath.Join(t.TempDir(), "clone")
	cloneTree(t, clone)

	// As it is pasted: one shell, which stops at the first command that fails.
	script := []string{"set -euo pipefail"}
	ran := map[string]bool{}
	for _, block := range page.Blocks {
		if block.Language != "sh" {
			continue
		}
		for line := range strings.Lines(block.Code) {
			line = strings.TrimSuffix(line, "\n")
			if shorter, ok := shortened[line]; ok {
				ran[line], line = true, shorter
			}
			script = append(script, line)
		}
	}
	assert.Equal(t, len(ran), len(shortened), "the page has the commands that are shortened here: %v", ran)
	walk := exec.CommandContext(t.Context(), "bash", "-c", strings.Join(script, "\n"))
	walk.Dir = clone
	walk.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false")
	said, err := walk.CombinedOutput()
	assert.NilError(t, err, "%s", said)
	assert.Assert(t, is.Contains(string(said), "passed"), "what plugin verify prints")

	typed, err := os.ReadFile(filepath.Join(clone, "..", "bubblewrap-provider", "main.go"))
	assert.NilError(t, err)
	shown := false
	for _, block := range page.Blocks {
		shown = shown || block.Language == "go" && strings.HasSuffix(string(typed), block.Code)
	}
	assert.Assert(t, shown, "main.go of the example is the one that the page shows: %s", typed)
	token, err := os.ReadFile(filepath.Join(clone, "..", "bubblewrap-provider", "token.txt"))
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(string(token), "sbk_"))
}

// cloneTree copies what git would clone, with what is changed here and not committed.
func cloneTree(t *testing.T, to string) {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("this is no clone: git cannot say which files belong to it: %v", err)
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // removed here, and not committed yet
		}
		assert.NilError(t, err)
		assert.NilError(t, os.MkdirAll(filepath.Join(to, filepath.Dir(path)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(to, path), content, 0o644))
	}
}
