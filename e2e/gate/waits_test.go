package main

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
	"time"

	"gotest.tools/v3/assert"
)

// A machine of tests may stand still for seconds. So a test that waits, outside of virtual time,
// allows at least a minute, and a test that measures does not fail for less. The clock is no seed:
// a run that fails must be repeatable.
func TestTestsDoNotDependOnSpeed(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." || entry.Name() == "node_modules" || entry.Name() == "bin"):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, complaint := range dependsOnSpeed(t, path) {
				t.Error(complaint)
			}
		}
		return nil
	})
	assert.NilError(t, err)
}

var clockAsSeed = regexp.MustCompile(`(rand\.|[sS]eed).*time\.Now\(\)\.Unix`)

// dependsOnSpeed says which lines of a file do.
func dependsOnSpeed(t *testing.T, path string) (complaints []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	assert.NilError(t, err)
	say := func(at token.Pos, what string) {
		complaints = append(complaints, fmt.Sprintf("%s: %s", files.Position(at), what))
	}
	virtual := usesVirtualTime(t, filepath.Dir(path))
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CallExpr:
			switch name := nameOf(n.Fun); {
			case name == "poll.WaitOn" && !n.Ellipsis.IsValid() && !hasTimeout(n.Args):
				say(n.Pos(), "poll.WaitOn without WithTimeout waits for 10 seconds")
			case name == "poll.WithTimeout" && len(n.Args) == 1:
				if limit, known := literal(n.Args[0]); known && limit < time.Minute {
					say(n.Pos(), fmt.Sprintf("a wait of %v; allow a minute", limit))
				}
			}
		case *ast.BinaryExpr:
			if (n.Op != token.LSS && n.Op != token.LEQ) || virtual || !strings.HasPrefix(callOf(n.X), "time.Since") {
				break
			}
			if limit, known := literal(n.Y); known && limit < time.Minute {
				say(n.Pos(), fmt.Sprintf("it fails after %v; allow a minute", limit))
			}
		}
		return true
	})
	for number, line := range strings.Split(string(text), "\n") {
		if clockAsSeed.MatchString(line) && !strings.Contains(line, "regexp.") {
			complaints = append(complaints, fmt.Sprintf("%s:%d: the clock is no seed", path, number+1))
		}
	}
	return complaints
}

func hasTimeout(args []ast.Expr) bool {
	for _, arg := range args {
		if strings.HasPrefix(callOf(arg), "poll.WithTimeout") {
			return true
		}
	}
	return false
}

// callOf is the name of a function that is called, or "".
func callOf(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok {
		return nameOf(call.Fun)
	}
	return ""
}

func nameOf(e ast.Expr) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if of, ok := selector.X.(*ast.Ident); ok {
		return of.Name + "." + selector.Sel.Name
	}
	return ""
}

// literal is the value of time.Second, or of a number of them.
func literal(e ast.Expr) (value time.Duration, known bool) {
	units := map[string]time.Duration{"time.Millisecond": time.Millisecond, "time.Second": time.Second, "time.Minute": time.Minute, "time.Hour": time.Hour}
	if unit, ok := units[nameOf(e)]; ok {
		return unit, true
	}
	product, ok := e.(*ast.BinaryExpr)
	if !ok || product.Op != token.MUL {
		return 0, false
	}
	number, ok := product.X.(*ast.BasicLit)
	unit, known := units[nameOf(product.Y)]
	if !ok || !known {
		return 0, false
	}
	var n int64
	if _, err := fmt.Sscan(number.Value, &n); err != nil {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// usesVirtualTime reports whether the tests of a directory run in bubbles of testing/synctest.
func usesVirtualTime(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	assert.NilError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		if strings.Contains(string(text), `"testing/synctest"`) {
			return true
		}
	}
	return false
}

func TestALineThatDependsOnSpeedIsFound(t *testing.T) {
	t.Parallel()
	for line, found := range map[string]bool{
		"poll.WaitOn(t, check)":                                                               true,
		"poll.WaitOn(t, check, poll.WithDelay(time.Second))":                                  true,
		"poll.WaitOn(t, check, poll.WithTimeout(20*time.Second))":                             true,
		"poll.WaitOn(t, check, poll.WithTimeout(time.Second))":                                true,
		"poll.WaitOn(t, check, poll.WithTimeout(time.Minute))":                                false,
		"poll.WaitOn(t, check, poll.WithTimeout(2*time.Minute), poll.WithDelay(time.Second))": false,
		"poll.WaitOn(t, check, options...)":                                                   false,
		"_ = time.Since(began) < 20*time.Second":                                              true,
		"_ = time.Since(began) <= 500*time.Millisecond":                                       true,
		"_ = time.Since(began) < time.Minute":                                                 false,
		"_ = time.Since(began) >= 2*time.Second":                                              false,
		"_ = rand.New(rand.NewPCG(uint64(time.Now()" + ".UnixNano()), 1))":                    true,
		"seed := time.Now()" + ".Unix()":                                                      true,
	} {
		file := filepath.Join(t.TempDir(), "x_test.go")
		assert.NilError(t, os.WriteFile(file, []byte("package x\nfunc f() {\n"+line+"\n}\n"), 0o600))
		assert.Check(t, (len(dependsOnSpeed(t, file)) > 0) == found, line)
	}
}
