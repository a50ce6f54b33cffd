package quickstart_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
	"github.com/sandbox-broker/sandbox-broker/e2e/transcript"
)

const (
	root = "../.."
	// address is where the broker of the pages listens.
	address = "127.0.0.1:9385"
	// longest is what a page may have: it is read beside a terminal.
	longest = 80
)

// walk is one page, and the directory in which somebody follows it.
type walk struct {
	name string
	page markdown.Page
	// lines of the page, from 0.
	lines []string
	dir   string
	// run is the block that starts the broker, or -1.
	run int
}

// read reads a page and makes its directory: what of a clone the page uses.
func read(t *testing.T, name string) *walk {
	t.Helper()
	page, err := markdown.Read(filepath.Join(root, "docs", "quick-start", name+".md"))
	assert.NilError(t, err)
	w := &walk{name: name, page: page, lines: strings.Split(page.Text, "\n"), dir: filepath.Join(t.TempDir(), "clone")}
	assert.Check(t, len(w.lines) <= longest, "the page has %d lines, more than %d", len(w.lines), longest)
	w.run = slices.IndexFunc(page.Blocks, func(b markdown.Block) bool { return b.Code == "make run\n" })
	assert.NilError(t, os.MkdirAll(w.dir, 0o700))
	bin, err := filepath.Abs(binaries.Dir(t))
	assert.NilError(t, err)
	assert.NilError(t, os.Symlink(bin, filepath.Join(w.dir, "bin")))
	assert.NilError(t, os.WriteFile(filepath.Join(w.dir, "sandbox.hcl"), shipped(t), 0o600))
	return w
}

// project is the name of the directory, beside the clone, in which the page has a client
// installed.
func (w *walk) project() string { return "hello-" + w.name }

// installs puts the lock file of the page's project where the page makes that project, with
// the packages that it names, and has the test fail if the page installs others. The page is
// not followed where no package can be had, but in CI.
func (w *walk) installs(t *testing.T) {
	t.Helper()
	locked := os.DirFS(filepath.Join("testdata", w.project()))
	lock, err := fs.ReadFile(locked, "package-lock.json")
	if errors.Is(err, fs.ErrNotExist) {
		assert.Assert(t, !strings.Contains(w.page.Text, "npm install"), "the page installs what no lock file names")
		return
	}
	assert.NilError(t, err)
	binaries.Needs(t, "npm", "npm")
	dir := filepath.Join(filepath.Dir(w.dir), w.project())
	assert.NilError(t, os.CopyFS(dir, locked))
	if err := npm.CI(t.Context(), dir); err != nil {
		binaries.Missing(t, err.Error())
	}
	t.Cleanup(func() {
		now, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
		assert.NilError(t, err)
		assert.Equal(t, string(now), string(lock), "what the page installs is what the lock file names")
	})
}

// shipped is the configuration of the repository.
func shipped(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "sandbox.hcl"))
	assert.NilError(t, err)
	return text
}

// made are commands of the pages that `make test-all PART=clients` has run before the tests.
var made = []string{"make build runsc\n", "make build\n"}

// named is the file that the block behind this line belongs into.
var named = regexp.MustCompile("`([\\w.-]+)`:$")

// follow pastes blocks of the page into one shell. Programs are saved under the name before
// them, and configuration goes to the end of sandbox.hcl.
func (w *walk) follow(t *testing.T, url string, from, to int) {
	t.Helper()
	here := strings.NewReplacer("http://"+address, url, address, strings.TrimPrefix(url, "http://"))
	results := t.TempDir()
	result := func(i int) string { return filepath.Join(results, fmt.Sprint(i)) }
	script := []string{"set -euo pipefail"}
	for i := from; i < to; i++ {
		block := w.page.Blocks[i]
		code := here.Replace(block.Code)
		switch before := named.FindStringSubmatch(w.above(block)); {
		case block.Language == "sh" && slices.Contains(made, block.Code):
		case block.Language == "sh":
			script = append(script, fmt.Sprintf("exec >%q", result(i)), code)
		case block.Language == "hcl":
			script = append(script, "cat >> sandbox.hcl <<'END OF THE BLOCK'\n"+code+"END OF THE BLOCK")
		case before != nil:
			script = append(script, "cat > "+before[1]+" <<'END OF THE BLOCK'\n"+code+"END OF THE BLOCK")
		default:
			assert.Assert(t, transcript.Shows(block.Language), "line %d: nobody knows what to do with this", block.Line)
			assert.Assert(t, w.printed(i) || block.Language == "text", "line %d: nothing prints this", block.Line)
		}
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", strings.Join(script, "\n"))
	shell.Dir = w.dir
	shell.Env = append(os.Environ(), "SANDBOX_BROKER_URL="+url, "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false")
	said, err := shell.CombinedOutput()
	for i := from; i < to; i++ {
		block := w.page.Blocks[i]
		if printed, err := os.ReadFile(result(i)); err == nil {
			t.Logf("line %d:\n%s%s", block.Line, block.Code, printed)
		}
		if !w.printed(i) {
			continue
		}
		t.Run(fmt.Sprintf("line %d", block.Line), func(t *testing.T) {
			printed, err := os.ReadFile(result(i - 1))
			assert.NilError(t, err, "nothing has printed this")
			transcript.Check(t, block, strings.ReplaceAll(string(printed), strings.TrimPrefix(url, "http://"), address))
		})
	}
	assert.NilError(t, err, "%s", said)
}

// printed reports whether a block is what the commands in the one before it print. Other text
// is for another program, or another machine.
func (w *walk) printed(i int) bool {
	if i == 0 || !transcript.Shows(w.page.Blocks[i].Language) {
		return false
	}
	before := w.page.Blocks[i-1]
	return before.Language == "sh" && i-1 != w.run && !slices.Contains(made, before.Code)
}

// above is the last line before a block that is not empty.
func (w *walk) above(b markdown.Block) string {
	for i := b.Line - 2; i >= 0; i-- {
		if w.lines[i] != "" {
			return w.lines[i]
		}
	}
	return ""
}

func TestEachQuickStartLeadsToWhatItShows(t *testing.T) {
	for _, program := range []string{"curl", "jq", "python3"} {
		binaries.Needs(t, program, program)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "quick-start", "*.md"))
	assert.NilError(t, err)
	var walks []*walk
	added := ""
	for _, path := range pages {
		w := read(t, strings.TrimSuffix(filepath.Base(path), ".md"))
		walks = append(walks, w)
		if w.run < 0 {
			continue
		}
		t.Run(w.name+", before the broker runs", func(t *testing.T) {
			w.follow(t, "http://"+address, 0, w.run)
			text, err := os.ReadFile(filepath.Join(w.dir, "sandbox.hcl"))
			assert.NilError(t, err)
			more, ok := strings.CutPrefix(string(text), string(shipped(t)))
			assert.Assert(t, ok, "a page adds to sandbox.hcl, and changes nothing in it")
			added += more
		})
	}
	assert.Assert(t, !t.Failed())
	assert.Equal(t, len(walks), 7, "the pages are found: %v", pages)

	b := harness.Start(t, harness.Options{Prepare: func(dir string) {
		binaries.Install(t, binaries.Runsc(t), filepath.Join(dir, "bin", "runsc"))
		config := strings.Replace(string(shipped(t)), address, "127.0.0.1:0", 1) + added
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "sandbox.hcl"), []byte(config), 0o600))
	}})
	for _, w := range walks {
		t.Run(w.name, func(t *testing.T) {
			if w.run >= 0 {
				file := filepath.Join(w.dir, "sandbox.hcl")
				assert.NilError(t, os.Remove(file))
				assert.NilError(t, os.Symlink(b.ConfigFile(), file))
			}
			w.installs(t)
			w.follow(t, b.URL, w.run+1, len(w.page.Blocks))
		})
	}
}
