package docs_test

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/types/typeutil"
	"gotest.tools/v3/assert"
)

const (
	// mostWalkFiles, mostWalkPackages and mostWalkReturns bound what who follows one
	// execution has to read.
	mostWalkFiles    = 25
	mostWalkPackages = 6
	mostWalkReturns  = 10
)

// walkStep is one call of the walk: a function, and the step that calls it.
type walkStep struct {
	file, name string
	// boundBy is the function that hands this one to the step before; empty where that
	// calls it by name. Who is bound by itself is a function literal in the one that is
	// named.
	boundBy string
	caller  *walkStep // nil for one that somebody else's code calls
}

func (s walkStep) String() string { return s.file + ": " + s.name }

var (
	walkItem = regexp.MustCompile("^( *)- \\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)(?: \\(bound by `(\\w+)`\\))?: ")
	exitItem = regexp.MustCompile("\\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)")
)

// section returns the lines of the page between two marks.
func section(t *testing.T, page, from, to string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "<!-- "+from+" -->\n")
	assert.Assert(t, ok, "the page has no %s", from)
	list, _, ok := strings.Cut(rest, "<!-- "+to+" -->")
	assert.Assert(t, ok, "the page has no %s", to)
	return strings.Split(strings.TrimSpace(list), "\n")
}

// walkOf reads the walk from the page: a list in which each function stands below the one
// that calls it.
func walkOf(t *testing.T, page string) []*walkStep {
	t.Helper()
	var steps, above []*walkStep
	for _, line := range section(t, page, "walk", "end of the walk") {
		m := walkItem.FindStringSubmatch(line)
		assert.Assert(t, m != nil, "this is no step of a walk: %s", line)
		depth := len(m[1]) / 2
		assert.Assert(t, depth <= len(above), "%s is deeper than its caller's calls", line)
		step := &walkStep{file: m[3], name: m[2], boundBy: m[4]}
		if above = above[:depth]; depth > 0 {
			step.caller = above[depth-1]
		}
		above = append(above, step)
		steps = append(steps, step)
	}
	return steps
}

// exitsOf reads which functions the walk calls for other requests alone.
func exitsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	exits := map[string]bool{}
	for _, line := range section(t, page, "exits", "end of the exits") {
		for _, m := range exitItem.FindAllStringSubmatch(line, -1) {
			exits[m[2]+": "+m[1]] = true
		}
	}
	return exits
}

// function is one of the packages that the walk passes.
type function struct {
	file string
	decl *ast.FuncDecl
	in   *packages.Package
}

func (f *function) String() string { return f.file + ": " + f.decl.Name.Name }

// callGraph is what calls are looked for in.
type callGraph struct {
	functions map[*types.Func]*function
	named     map[string][]*function // by file and name; methods of several types may share one
	types     []*types.Named
}

// callGraphOf reads the packages in those directories, with the types of all that is called.
func callGraphOf(t *testing.T, directories []string) *callGraph {
	t.Helper()
	root, err := filepath.Abs("..")
	assert.NilError(t, err)
	var patterns []string
	for _, directory := range directories {
		patterns = append(patterns, "./"+directory)
	}
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: root, Context: t.Context()}, patterns...)
	assert.NilError(t, err)
	assert.Equal(t, len(loaded), len(directories))
	c := &callGraph{functions: map[*types.Func]*function{}, named: map[string][]*function{}}
	for _, p := range loaded {
		assert.Equal(t, len(p.Errors), 0, "%v", p.Errors)
		for _, syntax := range p.Syntax {
			file, err := filepath.Rel(root, p.Fset.Position(syntax.Pos()).Filename)
			assert.NilError(t, err)
			for _, declared := range syntax.Decls {
				if d, ok := declared.(*ast.FuncDecl); ok && d.Body != nil {
					f := &function{file, d, p}
					object, ok := p.TypesInfo.Defs[d.Name].(*types.Func)
					assert.Assert(t, ok)
					c.functions[object] = f
					c.named[f.String()] = append(c.named[f.String()], f)
				}
			}
		}
		for _, name := range p.Types.Scope().Names() {
			declared, ok := p.Types.Scope().Lookup(name).(*types.TypeName)
			if !ok || declared.IsAlias() {
				continue
			}
			if named, ok := declared.Type().(*types.Named); ok && named.TypeParams().Len() == 0 && !types.IsInterface(named) {
				c.types = append(c.types, named)
			}
		}
	}
	return c
}

// call is what one call in a function may lead to: one function, or any of those behind
// the method of an interface.
type call struct {
	through string // the interface's method; empty for a call by name
	to      []*function
}

// calls returns where a function's calls lead, as far as that is in the packages. Of one
// that is bound by itself only what is in its literals counts: the rest runs when routes
// are registered.
func (c *callGraph) calls(f *function, literals bool) (all []call) {
	var look func(n ast.Node, counts bool)
	look = func(n ast.Node, counts bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				if !counts {
					look(n.Body, true)
					return false
				}
			case *ast.CallExpr:
				if called, ok := typeutil.Callee(f.in.TypesInfo, n).(*types.Func); ok && counts {
					if one := c.resolve(called.Origin()); len(one.to) > 0 {
						all = append(all, one)
					}
				}
			}
			return true
		})
	}
	look(f.decl.Body, !literals)
	return all
}

func (c *callGraph) resolve(called *types.Func) call {
	if f := c.functions[called]; f != nil {
		return call{to: []*function{f}}
	}
	receiver := called.Signature().Recv()
	if receiver == nil || called.Pkg() == nil { // error.Error belongs to nobody
		return call{}
	}
	behind, ok := receiver.Type().Underlying().(*types.Interface)
	if !ok {
		return call{}
	}
	one := call{through: called.FullName()}
	for _, named := range c.types {
		pointer := types.NewPointer(named)
		if !types.Implements(pointer, behind) {
			continue
		}
		method, _, _ := types.LookupFieldOrMethod(pointer, true, called.Pkg(), called.Name())
		if m, ok := method.(*types.Func); ok && c.functions[m.Origin()] != nil {
			one.to = append(one.to, c.functions[m.Origin()])
		}
	}
	return one
}

// uses reports whether a function names another one, or is it.
func (f *function) uses(c *callGraph, other string) (found bool) {
	if f.String() == other {
		return true
	}
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if object, ok := f.in.TypesInfo.Uses[id].(*types.Func); ok {
				for _, one := range c.resolve(object.Origin()).to {
					found = found || one.String() == other
				}
			}
		}
		return !found
	})
	return found
}

// The walk of the page is that of the code: each function is there, its caller calls it,
// or has it from the function that binds the two, and nothing else that they call leads to
// a file which is not counted.
func TestTheWalkOfAnExecutionIsThatOfTheCode(t *testing.T) {
	page, err := os.ReadFile("architecture.md")
	assert.NilError(t, err)
	steps, exits := walkOf(t, string(page)), exitsOf(t, string(page))
	directories, walked := map[string]bool{}, map[string]bool{}
	for _, s := range steps {
		directories[filepath.Dir(s.file)], walked[s.String()] = true, true
	}
	c := callGraphOf(t, slices.Sorted(maps.Keys(directories)))

	files, passed, returns := map[string]bool{}, map[string]bool{}, 0
	left := map[string]bool{} // exits that no function of the walk has
	for exit := range exits {
		assert.Check(t, !walked[exit], "%s is in the walk and an exit", exit)
		left[exit] = true
	}
	for _, s := range steps {
		here := c.named[s.String()]
		assert.Assert(t, len(here) > 0, "there is no function %s", s)
		switch {
		case s.boundBy != "":
			binds := slices.ContainsFunc(c.named[s.file+": "+s.boundBy], func(f *function) bool {
				return f.uses(c, s.String()) && (s.caller == nil || f.uses(c, s.caller.String()))
			})
			assert.Check(t, binds, "%s does not bind %s and %s", s.boundBy, s.caller, s)
		case s.caller != nil:
			assert.Check(t, c.leadsTo(s.caller, s.String()), "%s does not call %s", s.caller, s)
		}
		if passed[s.file] && (s.caller == nil || s.caller.file != s.file) {
			returns++
		}
		passed[s.file], files[s.file] = true, true
		for _, f := range here {
			for _, called := range c.calls(f, s.boundBy == s.name) {
				on := func(f *function) bool { return walked[f.String()] }
				exit := func(f *function) bool { return exits[f.String()] }
				for _, to := range called.to {
					delete(left, to.String())
				}
				switch {
				case slices.ContainsFunc(called.to, on), slices.ContainsFunc(called.to, exit):
				case called.through != "":
					t.Errorf("%s calls %s; the walk has nothing that is behind it: %v", s, called.through, called.to)
				default:
					files[called.to[0].file] = true
				}
			}
		}
	}
	assert.Check(t, len(left) == 0, "no function of the walk calls %v", slices.Sorted(maps.Keys(left)))
	assert.Check(t, len(files) <= mostWalkFiles && len(directories) <= mostWalkPackages && returns <= mostWalkReturns,
		"%d files, %d packages, %d returns: %v", len(files), len(directories), returns, slices.Sorted(maps.Keys(files)))
	says := fmt.Sprintf("%d functions in %d files of %d packages, and what these call is in %d files together; %d calls lead back into a file", len(steps), len(passed), len(directories), len(files), returns)
	assert.Check(t, strings.Contains(string(page), says), "the page does not say: %s", says)
}

// leadsTo reports whether a step calls a function.
func (c *callGraph) leadsTo(from *walkStep, to string) bool {
	for _, f := range c.named[from.String()] {
		for _, called := range c.calls(f, from.boundBy == from.name) {
			if slices.ContainsFunc(called.to, func(f *function) bool { return f.String() == to }) {
				return true
			}
		}
	}
	return false
}
