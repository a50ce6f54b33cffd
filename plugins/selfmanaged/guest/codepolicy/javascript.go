package codepolicy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// maxParsed bounds the code that is looked into. The parser's stack grows with
// the nesting of some constructs, and the end of the stack would be the end of
// process 1.
const maxParsed = 256 << 10

// Program is JavaScript that was parsed.
type Program struct {
	*js.AST
	// Returns is set if it can only be a script that returns at its top level.
	Returns bool
	source  []byte
}

// ParseJavaScript parses a module or a script; a script may return, as Node lets
// it. What Node can run may still be an error here.
func ParseJavaScript(code string) (*Program, error) {
	if len(code) > maxParsed {
		return nil, fmt.Errorf("the code is larger than %d KiB", maxParsed>>10)
	}
	source := append(make([]byte, 0, len(code)+1), code...) // the parser wants room for one byte
	ast, err := js.Parse(parse.NewInputBytes(source), js.Options{})
	if err == nil {
		return &Program{AST: ast, source: source}, nil
	}
	if ast, errInline := js.Parse(parse.NewInputBytes(source), js.Options{Inline: true}); errInline == nil {
		return &Program{AST: ast, Returns: true, source: source}, nil
	}
	return nil, err
}

// JavaScriptFindings analyses code that ParseJavaScript returned as program or
// refused with err, which is a finding too: nobody knows what such code does.
func (p Policy) JavaScriptFindings(program *Program, err error) []Finding {
	a := &analysis{rules: p.JavaScript, allowed: p.Allowed, aliases: map[*js.Var]string{}}
	if err != nil {
		f := Finding{Line: 1, Column: 1, Rule: ruleUnparsable, Message: "the code cannot be parsed: " + err.Error()}
		if e, ok := errors.AsType[*parse.Error](err); ok {
			f.Line, f.Column, f.Message = e.Line, e.Column, "the code cannot be parsed: "+e.Message
		}
		a.add(f)
		return Bounded(a.findings)
	}
	a.source = program.source
	js.Walk(learner{a}, program.AST)
	js.Walk(a, program.AST)
	a.checkComments()
	slices.SortStableFunc(a.findings, func(x, y Finding) int {
		return cmp.Or(x.Line-y.Line, x.Column-y.Column)
	})
	return Bounded(slices.Compact(a.findings))
}

// analysis checks a program.
type analysis struct {
	rules   Rules
	allowed []string
	source  []byte
	// aliases are what declared variables stand for, as paths from a global.
	aliases  map[*js.Var]string
	literals [][2]int // where strings, templates and regular expressions are
	findings []Finding
}

func (a *analysis) add(f Finding) {
	if !slices.Contains(a.allowed, f.Rule) {
		a.findings = append(a.findings, f)
	}
}

func (a *analysis) report(n js.INode, rule, message string) { a.reportAt(a.place(n), rule, message) }

func (a *analysis) reportAt(at int, rule, message string) {
	before := a.source[:max(at, 0)]
	start := bytes.LastIndexByte(before, '\n') + 1
	a.add(Finding{
		Line: bytes.Count(before, []byte("\n")) + 1, Column: utf8.RuneCount(before[start:]) + 1,
		Rule: rule, Message: message,
	})
}

// place finds where in the source a node is. The parser keeps no positions, but
// what it keeps of names and literals is part of the source. One thing stands for
// all uses of a variable in a scope, so a name may be found where it stands first;
// literals are better.
func (a *analysis) place(n js.INode) int {
	f := &placeFinder{analysis: a, literal: -1, name: -1}
	js.Walk(f, n)
	if f.literal >= 0 {
		return f.literal
	}
	return f.name
}

// offset finds where part of the source begins, -1 if it is none.
func (a *analysis) offset(part []byte) int {
	if len(part) == 0 || len(a.source) == 0 {
		return -1
	}
	// Only the addresses are compared; nothing is reached through them.
	at := uintptr(unsafe.Pointer(&part[0])) - uintptr(unsafe.Pointer(&a.source[0]))
	if at >= uintptr(len(a.source)) {
		return -1
	}
	return int(at)
}

type placeFinder struct {
	*analysis
	literal, name int
}

// Enter implements js.IVisitor.
func (f *placeFinder) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.LiteralExpr:
		f.literal = first(f.literal, f.offset(n.Data))
	case *js.DotExpr:
		if member, ok := n.Y.(js.LiteralExpr); ok {
			f.literal = first(f.literal, f.offset(member.Data))
		}
	case *js.TemplateExpr:
		f.literal = first(f.literal, f.offset(n.Tail))
	case *js.Var:
		f.name = first(f.name, f.offset(n.Data))
	}
	return f
}

// Exit implements js.IVisitor.
func (f *placeFinder) Exit(js.INode) {}

func first(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
