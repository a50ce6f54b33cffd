package docs_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// forEachPage runs a test on every page, named by its path from the root.
func forEachPage(t *testing.T, test func(t *testing.T, path string, page markdown.Page)) {
	t.Helper()
	paths, err := markdown.Pages("..")
	assert.NilError(t, err)
	assert.Assert(t, len(paths) > 10, "the pages are found: %v", paths)
	for _, path := range paths {
		t.Run(strings.TrimPrefix(path, "../"), func(t *testing.T) {
			page, err := markdown.Read(path)
			assert.NilError(t, err)
			test(t, path, page)
		})
	}
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	forEachPage(t, func(t *testing.T, path string, page markdown.Page) {
		for _, link := range page.Links {
			target, err := url.Parse(link)
			assert.NilError(t, err)
			if target.Scheme != "" {
				continue
			}
			into := path
			if target.Path != "" {
				into = filepath.Join(filepath.Dir(path), target.Path)
			}
			_, err = os.Stat(into)
			assert.Check(t, err, "the link %s", link)
			if target.Fragment == "" || err != nil {
				continue
			}
			other, err := markdown.Read(into)
			assert.NilError(t, err)
			assert.Check(t, slices.Contains(other.Anchors(), target.Fragment), "the link %s names no heading of %v", link, other.Anchors())
		}
	})
}

func TestEveryPageIsInTheIndex(t *testing.T) {
	index, err := markdown.Read("README.md")
	assert.NilError(t, err)
	forEachPage(t, func(t *testing.T, path string, _ markdown.Page) {
		below, err := filepath.Rel("../docs", path)
		assert.NilError(t, err)
		if filepath.IsLocal(below) && below != "README.md" {
			assert.Check(t, slices.Contains(index.Links, below), "docs/README.md does not link to it")
		}
	})
}

var code = regexp.MustCompile(`\bSB\d{3}\b`)

func TestEveryErrorCodeExists(t *testing.T) {
	forEachPage(t, func(t *testing.T, _ string, page markdown.Page) {
		for _, found := range code.FindAllString(page.Text, -1) {
			assert.Check(t, sdk.Code(found).Known(), found)
		}
	})
}

var (
	makeCall   = regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z0-9-]*)")
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

func TestEveryTargetOfMakeExists(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	assert.NilError(t, err)
	var targets []string
	for _, match := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, match[1])
	}
	forEachPage(t, func(t *testing.T, _ string, page markdown.Page) {
		for _, match := range makeCall.FindAllStringSubmatch(page.Text, -1) {
			assert.Check(t, slices.Contains(targets, match[1]), "make %s", match[1])
		}
	})
}

func TestEveryBlockIsWhatItSaysItIs(t *testing.T) {
	examples := compiledExamples(t)
	known := []string{"", "text", "sh", "hcl", "json", "go", "ini", "nginx", "mermaid", "events", "js"}
	forEachPage(t, func(t *testing.T, path string, page markdown.Page) {
		for _, block := range page.Blocks {
			where := fmt.Sprintf("line %d", block.Line)
			assert.Check(t, slices.Contains(known, block.Language), "%s: language %q", where, block.Language)
			switch block.Language {
			case "json":
				assert.Check(t, json.Valid([]byte(block.Code)), where)
			case "go":
				assert.Check(t, strings.Contains(examples, "\n"+block.Code), "%s is in no example_test.go of the SDK and not in examples/bubblewrap-provider", where)
			case "hcl":
				// The settings of plugins are checked in package e2e.
				_, diags := config.Parse(path, []byte(block.Configuration("plugins")))
				assert.Check(t, !diags.HasErrors(), "%s: %v", where, diags)
			}
		}
	})
}

// compiledExamples is the source of all examples of the SDK, and of a provider that
// is built with it.
func compiledExamples(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../sdk/*/example_test.go")
	assert.NilError(t, err)
	provider, err := filepath.Glob("../examples/bubblewrap-provider/*.go")
	assert.NilError(t, err)
	assert.Assert(t, len(provider) > 5, "the example is found: %v", provider)
	var all strings.Builder
	for _, file := range append(append(files, provider...), "../sdk/example_test.go") {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		all.WriteString("\n" + string(text))
	}
	return all.String()
}

// A direct dependency has one row: why it is there, in which version.
func TestThePageOfDependenciesAgreesWithTheModule(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json", "../go.mod").Output()
	assert.NilError(t, err)
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	assert.NilError(t, json.Unmarshal(out, &mod))
	var want []string
	for _, r := range mod.Require {
		if !r.Indirect {
			want = append(want, r.Path+" "+r.Version)
		}
	}
	page, err := markdown.Read("dependencies.md")
	assert.NilError(t, err)
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v\\S+) \\| \\S").FindAllStringSubmatch(page.Text, -1) {
		got = append(got, row[1]+" "+row[2])
	}
	slices.Sort(want)
	slices.Sort(got)
	assert.Check(t, is.DeepEqual(got, want))
}

// A page names neither the registry that a build happens to use nor a place on
// the machine of its author.
func TestNoPageNamesAPrivatePlace(t *testing.T) {
	private := regexp.MustCompile(`/root/|/home/([a-tv-z]|u[^s])|/tmp/[a-z]`)
	forEachPage(t, func(t *testing.T, _ string, page markdown.Page) {
		assert.Check(t, is.Len(private.FindAllString(page.Text, -1), 0))
	})
}
