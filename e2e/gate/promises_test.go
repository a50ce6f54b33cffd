package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Each promise of the pages has a test that the gate runs, in the part that the page names.
func TestEachPromiseHasItsTestInTheGate(t *testing.T) {
	t.Parallel()
	parts, err := readParts(filepath.Join(root, ".ci", "parts.hcl"))
	assert.NilError(t, err)
	packages, err := testPackages(t.Context(), root)
	assert.NilError(t, err)
	for _, page := range []string{"reliability.md", "security.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		assert.NilError(t, err)
		_, table, found := strings.Cut(string(text), "| promise | in the gate | part |\n| --- | --- | --- |\n")
		assert.Assert(t, found, "%s has no table of promises", page)
		table, _, _ = strings.Cut(table, "\n\n")
		for row := range strings.Lines(table) {
			cells := strings.Split(strings.Trim(row, "| \n"), " | ")
			assert.Assert(t, len(cells) == 3, "%s: %s", page, row)
			name, test := strings.Trim(cells[2], "`"), strings.Trim(cells[1], "`")
			at := slices.IndexFunc(parts, func(p part) bool { return p.Name == name && p.Gate != "" && p.selects(test) })
			assert.Assert(t, at >= 0, "%s: the gate does not run %s in a part %s", page, test, name)
			assert.Check(t, inGate(t, parts[at].of(packages), test), "%s: no package of %s has %s, or the gate leaves it out", page, name, test)
		}
	}
}

// inGate reports whether a package has the test, and the test does not begin with tier.Full.
func inGate(t *testing.T, packages []testPackage, test string) bool {
	t.Helper()
	for _, pkg := range packages {
		if !slices.Contains(pkg.tests, test) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, pkg.path, "*_test.go"))
		assert.NilError(t, err)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			assert.NilError(t, err)
			for _, decl := range parsed.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == test {
					return !slices.ContainsFunc(f.Body.List, func(s ast.Stmt) bool {
						e, ok := s.(*ast.ExprStmt)
						return ok && callOf(e.X) == "tier.Full"
					})
				}
			}
		}
	}
	return false
}
