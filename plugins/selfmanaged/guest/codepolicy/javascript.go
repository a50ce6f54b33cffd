package codepolicy

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"

	"github.com/sandbox-broker/sandbox-broker/sdk/program/javascript"
)

// JavaScriptFindings analyses code that javascript.Parse returned as program or
// refused with err, which is a finding too: nobody knows what such code does.
func (p Policy) JavaScriptFindings(program *javascript.Program, err error) []Finding {
	a := &analysis{rules: p.JavaScript, allowed: p.Allowed, aliases: map[*js.Var]string{}}
	if err != nil {
		f := Finding{Line: 1, Column: 1, Rule: ruleUnparsable, Message: "the code cannot be parsed: " + err.Error()}
		if e, ok := errors.AsType[*parse.Error](err); ok {
			f.Line, f.Column, f.Message = e.Line, e.Column, "the code cannot be parsed: "+e.Message
		}
		a.add(f)
		return Bounded(a.findings)
	}
	a.source = program.Source
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
