package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/hclsimple"
)

const module = "github.com/sandbox-broker/sandbox-broker"

// part is a block of .ci/parts.hcl, which says what each field means.
type part struct {
	Name     string   `hcl:"name,label"`
	Purpose  string   `hcl:"purpose"`
	Gate     string   `hcl:"gate,optional"`
	Packages []string `hcl:"packages,optional"`
	Except   []string `hcl:"except,optional"`
	Tests    string   `hcl:"tests,optional"`
	Skip     string   `hcl:"skip,optional"`
	Variant  string   `hcl:"variant,optional"`
	With     string   `hcl:"with,optional"`
	Make     []string `hcl:"make,optional"`
	Race     bool     `hcl:"race,optional"`
	Racing   bool     `hcl:"race_programs,optional"`
	Jobs     int      `hcl:"jobs,optional"`
	Parallel int      `hcl:"parallel,optional"`
	Safety   bool     `hcl:"safety,optional"`
	Alone    bool     `hcl:"alone,optional"`
	Shards   int      `hcl:"shards,optional"`
	Args     []string `hcl:"args,optional"`
	GateArgs []string `hcl:"gate_args,optional"`
	Fuzz     bool     `hcl:"fuzz,optional"`
	Module   string   `hcl:"module,optional"`
}

// readParts reads and checks a list of parts.
func readParts(file string) ([]part, error) {
	var list struct {
		Parts []part `hcl:"part,block"`
	}
	if err := hclsimple.DecodeFile(file, nil, &list); err != nil {
		return nil, fmt.Errorf("read the parts: %w", err)
	}
	seen := map[string]bool{}
	for i := range list.Parts {
		p := &list.Parts[i]
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%s: part %q: %w", file, p.Name, err)
		}
		if seen[p.Name] {
			return nil, fmt.Errorf("%s: two parts are named %q", file, p.Name)
		}
		seen[p.Name] = true
		p.Jobs, p.Shards = cmp.Or(p.Jobs, 1), cmp.Or(p.Shards, 1)
	}
	return list.Parts, nil
}

func (p part) check() error {
	for _, pattern := range []string{p.Tests, p.Skip} {
		if _, err := regexp.Compile(pattern); err != nil {
			return err
		}
	}
	switch {
	case p.Gate != "" && p.Gate != "short" && p.Gate != "whole":
		return fmt.Errorf("gate must be short or whole, not %q", p.Gate)
	case p.With != "" && p.With != "docker" && p.With != "postgres" && p.With != "cluster":
		return fmt.Errorf("with must be docker, postgres or cluster, not %q", p.With)
	case (len(p.Packages) == 0) != (p.Module != ""):
		return errors.New("a part has packages, or a module of its own")
	case p.Gate != "" && (p.Fuzz || p.Module != ""):
		return errors.New("neither fuzzing nor another module is part of the gate")
	}
	return nil
}

// testPackage is a package with tests.
type testPackage struct {
	path  string // below the module, as ./broker/api
	tests []string
	fuzz  []string
}

// testPackages lists the packages of the module that have tests, with the names of their tests as
// this system builds them.
func testPackages(ctx context.Context, root string) ([]testPackage, error) {
	list := exec.CommandContext(ctx, "go", "list", "-f",
		"{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}{{end}}", "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	var packages []testPackage
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		p := testPackage{path: "." + strings.TrimPrefix(fields[0], module)}
		for _, file := range fields[2:] {
			if err := p.read(filepath.Join(fields[1], file)); err != nil {
				return nil, err
			}
		}
		slices.Sort(p.tests)
		slices.Sort(p.fuzz)
		packages = append(packages, p)
	}
	return packages, nil
}

// read adds the tests and the fuzz targets of a file.
func (p *testPackage) read(file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("read tests: %w", err)
	}
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		switch {
		case !ok || f.Recv != nil:
		case isNamed(f.Name.Name, "Test") && f.Name.Name != "TestMain":
			p.tests = append(p.tests, f.Name.Name)
		case isNamed(f.Name.Name, "Fuzz"):
			p.fuzz = append(p.fuzz, f.Name.Name)
		}
	}
	return nil
}

// isNamed reports whether go test takes a function for one of the kind.
func isNamed(name, kind string) bool {
	rest, ok := strings.CutPrefix(name, kind)
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || !unicode.IsLower(first))
}

// of returns those of the packages that the part tests.
func (p part) of(all []testPackage) []testPackage {
	var some []testPackage
	for _, pkg := range all {
		if matchesAny(p.Packages, pkg.path) && !matchesAny(p.Except, pkg.path) {
			some = append(some, pkg)
		}
	}
	return some
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if parent, ok := strings.CutSuffix(pattern, "/..."); ok {
			return path == parent || strings.HasPrefix(path, parent+"/")
		}
		return path == pattern
	})
}

// selects reports whether the part runs a test, as go test reads -run and -skip.
func (p part) selects(test string) bool {
	run, _, _ := strings.Cut(p.Tests, "/")
	if !regexp.MustCompile(run).MatchString(test) {
		return false
	}
	// A pattern for subtests leaves others of the test.
	return p.Skip == "" || strings.Contains(p.Skip, "/") || !regexp.MustCompile(p.Skip).MatchString(test)
}

// unit is what go test runs at once: a part, or a shard of it.
type unit struct {
	part
	name     string
	packages []testPackage
	run      string // the value of -run
}

// units are the parts as the gate or all of the tests run them.
func units(parts []part, all []testPackage, gate bool) []unit {
	var some []unit
	for _, p := range parts {
		if gate && p.Gate == "" {
			continue
		}
		packages := p.of(all)
		if p.Fuzz {
			packages = slices.DeleteFunc(packages, func(pkg testPackage) bool { return len(pkg.fuzz) == 0 })
		}
		if gate || p.Shards == 1 {
			some = append(some, unit{part: p, name: p.Name, packages: packages, run: p.Tests})
			continue
		}
		for shard := range p.Shards {
			some = append(some, p.shard(packages, shard))
		}
	}
	return some
}

// shard is one of p.Shards. Each has every so many-th test, or fuzz target, of the packages.
func (p part) shard(packages []testPackage, shard int) unit {
	u := unit{part: p, name: fmt.Sprintf("%s-%d", p.Name, shard+1), run: p.Tests}
	var at int
	var names []string
	for _, pkg := range packages {
		mine := testPackage{path: pkg.path}
		for _, test := range pkg.tests {
			if p.Fuzz || !p.selects(test) {
				continue
			}
			if at++; at%p.Shards == shard {
				mine.tests, names = append(mine.tests, test), append(names, test)
			}
		}
		for _, target := range pkg.fuzz {
			if at++; p.Fuzz && at%p.Shards == shard {
				mine.fuzz = append(mine.fuzz, target)
			}
		}
		if len(mine.tests)+len(mine.fuzz) > 0 {
			u.packages = append(u.packages, mine)
		}
	}
	if !p.Fuzz {
		u.run = "^(" + strings.Join(names, "|") + ")$"
	}
	return u
}
