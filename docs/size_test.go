package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

const (
	// mostMethods is what one type may have.
	mostMethods = 60
	// mostFiles is what one package may have, tests and generated files aside.
	mostFiles = 40
)

// sizes counts the methods of each type of the tree, and the files of each package.
func sizes(root string) (methods, files map[string]int, err error) {
	methods, files = map[string]int{}, map[string]int{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		within, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		files[within]++
		for _, declared := range file.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[within+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
		return nil
	})
	return methods, files, err
}

// receiver is the name of a method's type, without its parameters.
func receiver(of ast.Expr) string {
	switch t := of.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	default:
		return ""
	}
}

func TestNoTypeAndNoPackageIsTooLarge(t *testing.T) {
	methods, files, err := sizes("..")
	assert.NilError(t, err)
	assert.Assert(t, len(methods) > 100 && len(files) > 50, "the tree is found: %d types, %d packages", len(methods), len(files))
	for name, n := range methods {
		assert.Check(t, n <= mostMethods, "%s has %d methods, more than %d", name, n, mostMethods)
	}
	for name, n := range files {
		assert.Check(t, n <= mostFiles, "%s has %d files, more than %d", name, n, mostFiles)
	}
}

func TestTheReceiverOfAMethod(t *testing.T) {
	for source, want := range map[string]string{
		"func (T) m() {}":          "T",
		"func (t *T) m() {}":       "T",
		"func (t T[K]) m() {}":     "T",
		"func (t *T[K, V]) m() {}": "T",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+source, 0)
		assert.NilError(t, err)
		f, ok := file.Decls[0].(*ast.FuncDecl)
		assert.Assert(t, ok)
		assert.Equal(t, receiver(f.Recv.List[0].Type), want)
	}
}
