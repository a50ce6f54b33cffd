package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

//go:embed skeleton
var skeleton embed.FS

// skeletonGo is the version of Go that the SDK needs.
const skeletonGo = "1.26.0"

type pluginNewCommand struct {
	Name   string `arg:"" help:"The plugin's name: lower-case letters, digits and underscores."`
	Dir    string `help:"The directory to write to; by default one of that name." placeholder:"DIR" type:"path"`
	Module string `help:"The path of the Go module; by default example.org/NAME." placeholder:"PATH"`
	SDK    string `name:"sdk" help:"Build against this checkout of the broker's repository, not against a release." placeholder:"DIR" type:"path"`
}

// skeletonData is what the templates know.
type skeletonData struct {
	Name, Module, Go string
	// Version of the SDK, or SDK for a checkout; without either, `go mod tidy`
	// takes the newest release.
	Version, SDK string
	// TokenVariable is the environment variable for the token in p.hcl.
	TokenVariable string
}

var (
	pluginName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	// release is a version that the module proxy knows.
	release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)
)

// Run writes the files, into a directory that is empty or not there.
func (c *pluginNewCommand) Run(term *terminal) error {
	data, err := c.data()
	if err != nil {
		return err
	}
	dir := c.Dir
	if dir == "" {
		dir = c.Name
	}
	if err := emptyDir(dir); err != nil {
		return err
	}
	names, err := writeSkeleton(dir, data)
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Fprintln(term.out, filepath.Join(dir, name))
	}
	_, err = fmt.Fprintf(term.out, "\nNext: cd %s && go mod tidy && go test ./...\nREADME.md says how to go on.\n", dir)
	return err
}

func (c *pluginNewCommand) data() (skeletonData, error) {
	if !pluginName.MatchString(c.Name) {
		return skeletonData{}, fmt.Errorf("%q cannot be the name of a plugin: it is not of the form %s", c.Name, pluginName)
	}
	data := skeletonData{Name: c.Name, Module: c.Module, Go: skeletonGo, TokenVariable: strings.ToUpper(c.Name) + "_TOKEN"}
	if data.Module == "" {
		data.Module = "example.org/" + c.Name
	}
	switch {
	case c.SDK != "":
		if _, err := os.Stat(filepath.Join(c.SDK, "sdk", "provider.go")); err != nil {
			return skeletonData{}, fmt.Errorf("--sdk: %s is no checkout of the broker's repository: %w", c.SDK, err)
		}
		data.SDK = c.SDK
	case release.MatchString(buildVersion()):
		data.Version = buildVersion()
	}
	return data, nil
}

// emptyDir makes a directory, or sees that there is nothing in it.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(dir, 0o777)
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty; name another directory with --dir", dir)
	}
	return nil
}

// writeSkeleton writes all files and returns their names in order.
func writeSkeleton(dir string, data skeletonData) ([]string, error) {
	// Go code is full of braces.
	templates, err := template.New("").Delims("[[", "]]").Option("missingkey=error").ParseFS(skeleton, "skeleton/*.tmpl")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range templates.Templates() {
		name := strings.TrimSuffix(t.Name(), ".tmpl")
		if name == "gitignore" {
			name = ".gitignore"
		}
		var text bytes.Buffer
		if err := t.Execute(&text, data); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o666); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}
