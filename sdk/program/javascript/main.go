package javascript

import (
	"slices"

	"github.com/tdewolff/parse/v2/js"
)

// ExpectsCall reports whether the code declares a top-level main that nothing
// outside of main itself uses; exporting it is no use. Code that does not parse,
// which is nil here, expects nothing.
func (p *Program) ExpectsCall() bool {
	if p == nil || p.Returns {
		return false
	}
	w := &mainUse{}
	for _, statement := range p.List {
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
	case *js.Var: // of export default
		w.exported(s)
		return
	case *js.ExprStmt:
		if b, ok := s.Value.(*js.BinaryExpr); ok && b.Op == js.EqToken && slices.Contains(exportTargets, b.X.String()) {
			w.exported(b.Y)
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

// exportTargets are what a CommonJS module assigns its exports to, as the parser
// prints it.
var exportTargets = []string{"(module.exports)", "(exports.main)", "((module.exports).main)"}

func (w *mainUse) exported(e js.IExpr) {
	switch e := e.(type) {
	case *js.Var:
	case *js.ObjectExpr:
		for _, property := range e.List {
			w.exported(property.Value)
		}
	default:
		js.Walk(w, e)
	}
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
