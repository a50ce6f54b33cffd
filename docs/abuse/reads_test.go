package abuse_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// folded makes one name of Content-Type and of the constant HeaderContentType.
func folded(header string) string {
	return strings.ToLower(strings.ReplaceAll(header, "-", ""))
}

// headersRead finds the fields that the source of the API reads or removes, folded.
func headersRead(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range []string{
		"api/rest", "api/lending", "api/v1", "api/portproxy", "api/handover", "api/preview", "frontdoor/ragflow", "frontdoor/opensandbox", "frontdoor/e2b", "frontdoor/mcp", "frontdoor/deerflow",
	} {
		paths, err := filepath.Glob(filepath.Join(root, "broker", dir, "*.go"))
		assert.NilError(t, err)
		assert.Assert(t, len(paths) > 0, dir)
		var files []*ast.File
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			assert.NilError(t, err)
			files = append(files, file)
		}
		find(t, files, names)
	}
	return names
}

func readsOf(t *testing.T, source string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	assert.NilError(t, err)
	names := map[string]bool{}
	find(t, []*ast.File{file}, names)
	return names
}

// accessors are the methods that read one field.
var accessors = map[string]string{
	"Cookies": "Cookie", "Cookie": "Cookie", "Host": "Host", "ContentType": "Content-Type", "ContentEncoding": "Content-Encoding",
	"Referer": "Referer", "UserAgent": "User-Agent", "ContentLength": "Content-Length",
}

func find(t *testing.T, files []*ast.File, names map[string]bool) {
	t.Helper()
	texts := textsOf(files)
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch receiver := lastName(method.X); {
			case method.Sel.Name == "EqualFold":
				ast.Inspect(call, func(node ast.Node) bool {
					if constant, ok := node.(*ast.SelectorExpr); ok && lastName(constant.X) == "fiber" {
						names[folded(strings.TrimPrefix(constant.Sel.Name, "Header"))] = true
					}
					return true
				})
			case len(call.Args) == 0 && accessors[method.Sel.Name] != "" && (receiver == "In" || isHeader(receiver)):
				names[folded(accessors[method.Sel.Name])] = true
			case len(call.Args) == 1 && isHeader(receiver) && slices.Contains([]string{"Get", "Values", "Peek", "PeekAll", "Del"}, method.Sel.Name):
				read := namesIn(call.Args[0], texts)
				assert.Check(t, len(read) > 0, "a header is read whose name this test cannot find: %s.%s", receiver, method.Sel.Name)
				for _, name := range read {
					names[folded(name)] = true
				}
			}
			return true
		})
	}
}

// isHeader reports whether that is how we call headers, and Fiber's context.
func isHeader(receiver string) bool {
	return slices.Contains([]string{"Header", "header", "headers", "h", "c"}, receiver)
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if lastName(e.X) == "Response" { // what the broker itself has written
			return ""
		}
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Fun)
	}
	return ""
}

func namesIn(e ast.Expr, texts map[string][]string) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return []string{text}
	case *ast.Ident:
		return texts[e.Name]
	case *ast.SelectorExpr:
		return []string{strings.TrimPrefix(e.Sel.Name, "Header")}
	}
	return nil
}

// textsOf are the constants of a package and the variables that go over lists of texts.
func textsOf(files []*ast.File) map[string][]string {
	texts := map[string][]string{}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.ValueSpec:
				for i, name := range node.Names {
					if i < len(node.Values) {
						if text, ok := node.Values[i].(*ast.BasicLit); ok && text.Kind == token.STRING {
							texts[name.Name] = namesIn(text, nil)
						}
					}
				}
			case *ast.RangeStmt:
				list, ok := node.X.(*ast.CompositeLit)
				variable, named := node.Value.(*ast.Ident)
				if ok && named {
					for _, item := range list.Elts {
						texts[variable.Name] = append(texts[variable.Name], namesIn(item, nil)...)
					}
				}
			}
			return true
		})
	}
	return texts
}
