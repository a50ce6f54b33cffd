package guest

import (
	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// definesUnusedMain reports whether JavaScript code declares a top-level main
// that nothing outside of main itself refers to. Such code expects to be called.
// Code that does not parse here is left to run as it is.
func definesUnusedMain(code string) bool {
	ast, err := js.Parse(parse.NewInputString(code), js.Options{})
	if err != nil {
		return false
	}
	w := &mainUse{}
	for _, statement := range ast.List {
		w.topLevel(statement)
	}
	return w.defined && w.used == 0
}

// mainUse counts what refers to main outside of its own definition.
type mainUse struct {
	defined bool
	used    int
}

func (w *mainUse) topLevel(statement js.INode) {
	switch s := statement.(type) {
	case *js.ExportStmt:
		if s.Decl != nil {
			w.topLevel(s.Decl)
			return
		}
	case *js.FuncDecl:
		if s.Name != nil && string(s.Name.Name()) == "main" {
			w.defined = true
			return
		}
	case *js.VarDecl:
		for _, binding := range s.List {
			if v, ok := binding.Binding.(*js.Var); ok && string(v.Name()) == "main" && isFunction(binding.Default) {
				w.defined = true
				return
			}
		}
	}
	js.Walk(w, statement)
}

func isFunction(e js.IExpr) bool {
	switch e.(type) {
	case *js.ArrowFunc, *js.FuncDecl:
		return true
	}
	return false
}

// Enter implements js.IVisitor.
func (w *mainUse) Enter(n js.INode) js.IVisitor {
	if v, ok := n.(*js.Var); ok && string(v.Name()) == "main" {
		w.used++
	}
	return w
}

// Exit implements js.IVisitor.
func (w *mainUse) Exit(js.INode) {}
