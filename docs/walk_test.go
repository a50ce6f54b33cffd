package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const (
	// mostWalkFiles, mostWalkPackages and mostWalkReturns bound what who follows one
	// execution has to read.
	mostWalkFiles    = 25
	mostWalkPackages = 6
	mostWalkReturns  = 10
)

// walkStep is one call of the walk: a function, and the step that calls it.
type walkStep struct {
	file, name string
	// boundBy is the function that hands this one to the step before; empty where that
	// calls it by name.
	boundBy string
	caller  *walkStep // nil for one that somebody else's code calls
}

func (s walkStep) String() string { return s.file + ": " + s.name }

var walkItem = regexp.MustCompile("^( *)- \\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)(?: \\(bound by `(\\w+)`\\))?: ")

// walkOf reads the walk from the page: a list in which each function stands below the one
// that calls it.
func walkOf(t *testing.T, page string) []*walkStep {
	t.Helper()
	_, rest, ok := strings.Cut(page, "<!-- walk -->\n")
	assert.Assert(t, ok, "the page has no walk")
	list, _, ok := strings.Cut(rest, "<!-- end of the walk -->")
	assert.Assert(t, ok, "the walk of the page has no end")
	var steps, above []*walkStep
	for line := range strings.SplitSeq(strings.TrimSpace(list), "\n") {
		m := walkItem.FindStringSubmatch(line)
		assert.Assert(t, m != nil, "this is no step of a walk: %s", line)
		depth := len(m[1]) / 2
		assert.Assert(t, depth <= len(above), "%s is deeper than its caller's calls", line)
		step := &walkStep{file: m[3], name: m[2], boundBy: m[4]}
		if above = above[:depth]; depth > 0 {
			step.caller = above[depth-1]
		}
		above = append(above, step)
		steps = append(steps, step)
	}
	return steps
}

// namesIn returns the identifiers in the functions of that name in a file, its own name
// among them; nil if there is none.
func namesIn(t *testing.T, file, function string) (names map[string]bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.SkipObjectResolution)
	assert.NilError(t, err)
	for _, declared := range parsed.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Name.Name != function || f.Body == nil {
			continue
		}
		if names == nil {
			names = map[string]bool{function: true}
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names[id.Name] = true
			}
			return true
		})
	}
	return names
}

// The walk of the page is that of the code: each function is there, and its caller calls
// it, or has it from the function that binds the two.
func TestTheWalkOfAnExecutionIsThatOfTheCode(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	assert.NilError(t, err)
	steps := walkOf(t, string(page))
	files, packages, returns := map[string]bool{}, map[string]bool{}, 0
	for _, s := range steps {
		assert.Assert(t, namesIn(t, s.file, s.name) != nil, "there is no function %s", s)
		switch {
		case s.boundBy != "":
			names := namesIn(t, s.file, s.boundBy)
			assert.Assert(t, names[s.name] && names[s.caller.name], "%s does not bind %s and %s", s.boundBy, s.caller, s)
		case s.caller != nil:
			assert.Assert(t, namesIn(t, s.caller.file, s.caller.name)[s.name], "%s does not call %s", s.caller, s)
		}
		if files[s.file] && (s.caller == nil || s.caller.file != s.file) {
			returns++
		}
		files[s.file], packages[filepath.Dir(s.file)] = true, true
	}
	assert.Assert(t, len(files) <= mostWalkFiles && len(packages) <= mostWalkPackages && returns <= mostWalkReturns,
		"%d files, %d packages, %d returns", len(files), len(packages), returns)
	says := fmt.Sprintf("%d functions in %d files of %d packages; %d calls lead back into a file", len(steps), len(files), len(packages), returns)
	assert.Assert(t, strings.Contains(string(page), says), "the page does not say: %s", says)
}
