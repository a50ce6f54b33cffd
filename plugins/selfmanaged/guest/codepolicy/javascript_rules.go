package codepolicy

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

var _ js.IVisitor = (*analysis)(nil)

// Enter implements js.IVisitor. Where a node decides about what is below it,
// Enter walks there itself and returns nil.
func (a *analysis) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.ImportStmt:
		a.checkModule(n.Module)
	case *js.ExportStmt:
		a.checkModule(n.Module)
	case *js.LiteralExpr:
		a.literal(n.Data)
	case *js.TemplateExpr:
		for _, part := range n.List {
			a.literal(part.Value)
		}
		a.literal(n.Tail)
		a.checkConstructor(n.Tag, true)
	case *js.Var:
		a.checkVariable(n)
	case *js.DotExpr, *js.IndexExpr:
		return a.enterMember(n.(js.IExpr))
	case *js.CallExpr:
		return a.enterCall(n)
	case *js.NewExpr:
		a.checkConstructor(n.X, false)
	case *js.UnaryExpr:
		return a.enterUnary(n)
	case *js.YieldExpr:
		a.checkOperand(n.X)
	case *js.BinaryExpr:
		return a.enterBinary(n)
	case *js.WithStmt:
		a.report(n.Cond, ruleAmbiguous, "with hides which variables are meant")
	case *js.VarDecl:
		a.checkPatterns(n)
	}
	return a
}

// Exit implements js.IVisitor.
func (a *analysis) Exit(js.INode) {}

func (a *analysis) literal(data []byte) {
	if at := a.offset(data); at >= 0 {
		a.literals = append(a.literals, [2]int{at, at + len(data)})
	}
}

// checkModule checks the module that an import or export statement names.
func (a *analysis) checkModule(quoted []byte) {
	if len(quoted) >= 2 {
		a.literal(quoted)
		a.checkImport(a.offset(quoted), unescape(string(quoted[1:len(quoted)-1])))
	}
}

func (a *analysis) checkImport(at int, module string) {
	name := strings.TrimPrefix(module, "node:")
	for prefix := name; prefix != ""; prefix = prefix[:max(strings.LastIndexByte(prefix, '/'), 0)] {
		rule := "javascript.import." + prefix
		if slices.Contains(a.allowed, rule) {
			return
		}
		if slices.Contains(a.rules.Imports, prefix) {
			a.reportAt(at, rule, "import of "+module)
			return
		}
	}
}

// importers take the name of a module and return it.
var importers = []string{"require", "_load", "getBuiltinModule"}

func (a *analysis) enterCall(n *js.CallExpr) js.IVisitor {
	a.checkConstructor(n.X, true)
	path := a.pathOf(n.X)
	_, member, _ := memberOf(n.X)
	keyword, isLiteral := n.X.(*js.LiteralExpr)
	isImport := isLiteral && keyword.TokenType == js.ImportToken
	certain := isImport || path == "require" || path == "process.getBuiltinModule"
	if (certain || slices.Contains(importers, member)) && len(n.Args.List) > 0 {
		// What is not surely an importer may have any argument.
		name, known := constantOf(n.Args.List[0].Value)
		if known {
			a.checkImport(a.place(n.Args.List[0].Value), name)
		} else if certain {
			a.report(n, ruleComputedImport, "import of a module whose name is computed")
		}
	}
	if path == "require" {
		js.Walk(a, &n.Args)
		a.enterObject(n.X)
		return nil
	}
	return a
}

// enterObject walks into what a member is taken of, but for a plain variable: the
// path was checked as a whole.
func (a *analysis) enterObject(e js.IExpr) {
	for {
		switch x := e.(type) {
		case *js.GroupExpr:
			e = x.X
			continue
		case *js.DotExpr:
			e = x.X
			continue
		case *js.IndexExpr:
			js.Walk(a, x.Y)
			e = x.X
			continue
		case *js.Var:
			return
		}
		js.Walk(a, e)
		return
	}
}

// withMembers are objects of which no computed member is to be taken, and
// harmless what may be taken of require.
var (
	withMembers = []string{"globalThis", "process", "module"}
	harmless    = []string{"require.resolve", "require.main", "require.cache", "require.extensions"}
)

func (a *analysis) enterMember(e js.IExpr) js.IVisitor {
	path := a.pathOf(e)
	switch object, _, known := memberOf(e); {
	case !known && slices.Contains(withMembers, a.pathOf(object)):
		a.report(e, ruleComputedAttribute, "a computed member of "+a.pathOf(object))
	case path == "require", strings.HasPrefix(path, "require.") && !a.harmless(path):
		a.report(e, ruleComputedImport, "require is passed on")
	case path != "":
		a.checkUse(e, path)
	}
	if a.constructorOfConstructor(e) {
		a.reportConstructor(e)
	}
	a.enterObject(e)
	return nil
}

func (a *analysis) harmless(path string) bool {
	return slices.ContainsFunc(harmless, func(h string) bool { return path == h || strings.HasPrefix(path, h+".") })
}

// checkUse checks a path against the calls. A member of a global function is
// another thing, unless it calls the function.
func (a *analysis) checkUse(n js.INode, path string) {
	for _, call := range a.rules.Calls {
		rest, ok := strings.CutPrefix(path, call)
		if !ok || rest != "" && rest[0] != '.' {
			continue
		}
		if rest != "" && !strings.Contains(call, ".") && !slices.Contains([]string{".call", ".apply", ".bind"}, rest) {
			continue
		}
		a.report(n, "javascript.call."+call, "use of "+call)
		return
	}
}

func (a *analysis) checkVariable(v *js.Var) {
	switch path := a.variable(v); path {
	case "":
	case "require":
		if origin(v).Decl == js.NoDecl {
			a.report(v, ruleComputedImport, "require is passed on")
		}
	default:
		if origin(v).Decl == js.NoDecl {
			a.checkUse(v, path)
		}
	}
}

// enterUnary lets code ask for the type of anything.
func (a *analysis) enterUnary(n *js.UnaryExpr) js.IVisitor {
	if n.Op == js.TypeofToken {
		if _, ok := n.X.(*js.Var); ok {
			return nil
		}
	}
	if n.Op == js.AwaitToken {
		a.checkOperand(n.X)
	}
	return a
}

// enterBinary lets code compare with anything.
func (a *analysis) enterBinary(n *js.BinaryExpr) js.IVisitor {
	switch n.Op {
	case js.InstanceofToken, js.EqEqToken, js.EqEqEqToken, js.NotEqToken, js.NotEqEqToken:
		for _, side := range []js.IExpr{n.X, n.Y} {
			if _, ok := side.(*js.Var); !ok {
				js.Walk(a, side)
			}
		}
		return nil
	}
	return a
}

// checkOperand objects to a regular expression right after await or yield: where
// these are no keywords it is a division, and its text is code.
func (a *analysis) checkOperand(e js.IExpr) {
	for {
		switch x := e.(type) {
		case *js.BinaryExpr:
			e = x.X
		case *js.DotExpr:
			e = x.X
		case *js.IndexExpr:
			e = x.X
		case *js.CallExpr:
			e = x.X
		case *js.CondExpr:
			e = x.Cond
		case *js.CommaExpr:
			if len(x.List) == 0 {
				return
			}
			e = x.List[0]
		case *js.TemplateExpr:
			if x.Tag == nil {
				return
			}
			e = x.Tag
		case *js.UnaryExpr: // a++ is one, with its operand first
			e = x.X
		case *js.LiteralExpr:
			if x.TokenType == js.RegExpToken {
				a.report(x, ruleAmbiguous, "a regular expression after await or yield may be a division")
			}
			return
		default:
			return
		}
	}
}

// checkPatterns checks what is taken out of objects: const {binding} = process.
func (a *analysis) checkPatterns(n *js.VarDecl) {
	for _, b := range n.List {
		pattern, ok := b.Binding.(*js.BindingObject)
		path := a.pathOf(b.Default)
		if !ok || path == "" {
			continue
		}
		for _, item := range pattern.List {
			name, known := keyOf(item)
			member := canonicalMember(path, name)
			switch {
			case !known:
			case member == "require":
				a.report(b.Default, ruleComputedImport, "require is passed on")
			default:
				a.checkUse(b.Default, member)
			}
		}
	}
}

// The constructor of a function is Function, by which any text becomes code.

func (a *analysis) checkConstructor(e js.IExpr, called bool) {
	object, name, _ := memberOf(e)
	if name != "constructor" || a.constructorOfConstructor(e) {
		return
	}
	// new this.constructor() makes another of the same class; a class cannot be
	// called without new.
	if called || isFunctionExpr(object) {
		a.reportConstructor(e)
	}
}

func (a *analysis) reportConstructor(e js.IExpr) {
	if slices.Contains(a.rules.Attributes, "constructor") {
		a.report(e, "javascript.attribute.constructor", "the constructor of a function makes code of text")
	}
}

// constructorOfConstructor also covers what is a function without being called
// so: a function expression, and the prototype of one.
func (a *analysis) constructorOfConstructor(e js.IExpr) bool {
	object, name, _ := memberOf(e)
	if name != "constructor" {
		return false
	}
	if _, inner, _ := memberOf(object); inner == "constructor" || isFunctionExpr(object) {
		return true
	}
	path := a.pathOf(object)
	if path == "Function" || path == "Function.prototype" || path == "eval" || path == "require" {
		return true
	}
	call, ok := object.(*js.CallExpr)
	if !ok || len(call.Args.List) == 0 {
		return false
	}
	_, function, _ := memberOf(call.X)
	return function == "getPrototypeOf" && isFunctionExpr(call.Args.List[0].Value)
}

func isFunctionExpr(e js.IExpr) bool {
	switch x := e.(type) {
	case *js.GroupExpr:
		return isFunctionExpr(x.X)
	case *js.FuncDecl, *js.ArrowFunc, *js.ClassDecl:
		return true
	}
	return false
}

// htmlComment finds what is a comment if the code is a script and code if it is a
// module.
var htmlComment = regexp.MustCompile(`<!--|(?m:^\s*(?:/\*.*\*/\s*)?-->)`)

// checkComments objects to comments as in HTML: a module may run what the parser
// skipped.
func (a *analysis) checkComments() {
	if !bytes.Contains(a.source, []byte("-->")) && !bytes.Contains(a.source, []byte("<!--")) {
		return
	}
	for _, match := range htmlComment.FindAllIndex(a.source, -1) {
		at := match[1] - 3
		if !slices.ContainsFunc(a.literals, func(l [2]int) bool { return l[0] <= at && at < l[1] }) {
			a.reportAt(at, ruleAmbiguous, "a comment as in HTML is code in a module")
		}
	}
}
