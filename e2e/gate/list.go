package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// list writes a line for each unit: its name, whether it is in the gate, its last green run, what
// has changed since, and its purpose.
func list(ctx context.Context, w io.Writer, root string, all []unit) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PART\tGATE\tLAST GREEN\tTOOK\tCHANGED SINCE\tPURPOSE")
	for _, u := range all {
		rec, ok, err := lastGreen(u.name)
		if err != nil {
			return err
		}
		commit, took, changed := "never", "", ""
		if ok {
			commit = rec.Commit[:min(12, len(rec.Commit))] + " " + rec.At.Format(time.DateOnly)
			took = time.Duration(rec.Seconds * float64(time.Second)).Round(time.Second).String()
			files, err := changes(ctx, root, rec.Commit, u)
			switch {
			case err != nil:
				changed = "unknown" // the commit is not in this clone
			case len(files) == 0:
				changed = "nothing"
			default:
				changed = fmt.Sprintf("%d files", len(files))
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", u.name, u.Gate, commit, took, changed, u.Purpose)
	}
	return table.Flush()
}

// everyonesInputs change what any part does.
var everyonesInputs = []string{"go.mod", "go.sum", "Makefile", ".ci"}

// changes are the files that differ from a commit and are inputs of a unit: what its packages are
// compiled of, and for tests of e2e, which start the programs, all but the documents.
func changes(ctx context.Context, root, commit string, u unit) ([]string, error) {
	out, err := git(ctx, root, "diff", "--name-only", commit)
	if err != nil {
		return nil, err
	}
	created, err := git(ctx, root, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	inputs, err := inputs(ctx, root, u)
	if err != nil {
		return nil, err
	}
	var some []string
	for file := range strings.FieldsSeq(out + "\n" + created) {
		if isInput(file, inputs) {
			some = append(some, file)
		}
	}
	return some, nil
}

// inputs are directories below root, and files, that decide what a unit does.
func inputs(ctx context.Context, root string, u unit) (map[string]bool, error) {
	all := map[string]bool{}
	for _, input := range everyonesInputs {
		all[input] = true
	}
	packages := []string{}
	for _, pkg := range u.packages {
		packages = append(packages, pkg.path)
		if strings.HasPrefix(pkg.path+"/", "./e2e/") {
			packages = append(packages, "./cmd/...", "./plugins/...", "./e2e/...")
		}
	}
	if u.Module != "" {
		all[u.Module] = true
		packages = append(packages, "./sdk/...", "./cmd/...")
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-test", "-f", "{{if not .Standard}}{{.Dir}}{{end}}"}, packages...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list what %s is made of: %w", u.name, err)
	}
	for dir := range strings.Lines(string(out)) {
		if below, err := filepath.Rel(root, strings.TrimSpace(dir)); err == nil && filepath.IsLocal(below) {
			all[filepath.ToSlash(below)] = true
		}
	}
	return all, nil
}

// isInput reports whether a file, or a directory that it is in, is among the inputs.
func isInput(file string, inputs map[string]bool) bool {
	for at := file; at != "."; at = path.Dir(at) {
		if inputs[at] {
			return true
		}
	}
	return false
}
