package codepolicy

import (
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

// pathOf returns what an expression stands for as a path from a global variable,
// such as process.binding, or "".
func (a *analysis) pathOf(e js.IExpr) string {
	var members []string
	for {
		switch x := e.(type) {
		case *js.GroupExpr:
			e = x.X
			continue
		case *js.CommaExpr: // (0, eval)
			if len(x.List) > 0 {
				e = x.List[len(x.List)-1]
				continue
			}
		case *js.DotExpr, *js.IndexExpr:
			object, name, known := memberOf(e)
			if !known {
				return ""
			}
			members = append(members, name)
			e = object
			continue
		}
		break
	}
	path := ""
	switch x := e.(type) {
	case *js.Var:
		path = a.variable(x)
	case *js.CallExpr:
		path = a.returned(x)
	}
	for i := len(members) - 1; i >= 0 && path != ""; i-- {
		path = canonicalMember(path, members[i])
	}
	return path
}

// memberOf takes a member expression apart, if its name is known.
func memberOf(e js.IExpr) (object js.IExpr, name string, known bool) {
	switch x := e.(type) {
	case *js.GroupExpr:
		return memberOf(x.X)
	case *js.DotExpr:
		if literal, ok := x.Y.(js.LiteralExpr); ok {
			return x.X, unescape(string(literal.Data)), true
		}
		return x.X, "", false // a private member
	case *js.IndexExpr:
		name, known = constantOf(x.Y)
		return x.X, name, known
	}
	return nil, "", false
}

// variable returns what a variable stands for: itself if nobody declares it.
func (a *analysis) variable(v *js.Var) string {
	v = origin(v)
	if v.Decl != js.NoDecl {
		return a.aliases[v]
	}
	return canonicalMember("", unescape(string(v.Data)))
}

func origin(v *js.Var) *js.Var {
	for v.Link != nil {
		v = v.Link
	}
	return v
}

// returned is what the value of a call stands for.
func (a *analysis) returned(call *js.CallExpr) string {
	path := a.pathOf(call.X)
	if path == "createRequire" || strings.HasSuffix(path, ".createRequire") {
		return "require"
	}
	if _, name, known := memberOf(call.X); known && name == "createRequire" {
		return "require"
	}
	return ""
}

// canonicalMember returns the path of an object's member under its usual name.
func canonicalMember(object, name string) string {
	switch {
	case object == "" && (name == "global" || name == "globalThis"):
		return "globalThis"
	case object == "globalThis" && (name == "global" || name == "globalThis"):
		return object
	case object == "" || object == "globalThis":
		return name
	case name == "require": // module.require, process.mainModule.require, require.main.require
		return name
	}
	return object + "." + name
}

// learner notes what declared variables stand for.
type learner struct{ *analysis }

// Enter implements js.IVisitor.
func (l learner) Enter(n js.INode) js.IVisitor {
	if declaration, ok := n.(*js.VarDecl); ok {
		for _, b := range declaration.List {
			l.learn(b.Binding, l.pathOf(b.Default))
		}
	}
	return l
}

// Exit implements js.IVisitor.
func (l learner) Exit(js.INode) {}

func (l learner) learn(to js.IBinding, path string) {
	if path == "" {
		return
	}
	switch b := to.(type) {
	case *js.Var:
		l.aliases[origin(b)] = path
	case *js.BindingObject:
		for _, item := range b.List {
			if name, known := keyOf(item); known {
				l.learn(item.Value.Binding, canonicalMember(path, name))
			}
		}
	}
}

// keyOf returns the name of the member that a part of a pattern takes.
func keyOf(item js.BindingObjectItem) (string, bool) {
	if item.Key == nil {
		v, ok := item.Value.Binding.(*js.Var)
		if !ok {
			return "", false
		}
		return unescape(string(v.Data)), true
	}
	return propertyName(*item.Key)
}

func propertyName(n js.PropertyName) (string, bool) {
	if n.IsComputed() {
		return constantOf(n.Computed)
	}
	return unescape(strings.Trim(string(n.Literal.Data), `"'`)), true
}
