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

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"github.com/sandbox-broker/sandbox-broker/config"
)

//go:embed skeleton
var skeleton embed.FS

// skeletonGo is the version of Go that the SDK needs.
const skeletonGo = "1.26.0"

type pluginNewCommand struct {
	Name   string `arg:"" help:"The plugin's name: lower-case letters, digits and underscores."`
	Dir    string `help:"The directory to write to; by default one of that name." placeholder:"DIR" type:"path"`
	Module string `help:"The path of the Go module; by default example.org/NAME." placeholder:"PATH"`
	SDK    string `name:"sdk" help:"Build against this clone of the broker's repository; by default the one that this program lies in, or else the release that it is." placeholder:"DIR" type:"path"`
}

// skeletonData is what the templates know.
type skeletonData struct {
	Name, Module, Go string
	// Version of the SDK, or SDK for a clone: one of them is set.
	Version, SDK string
	// TokenVariable is the environment variable for the token in p.hcl.
	TokenVariable string
}

// shippedPlugins come with the broker: another of the same name would take their
// place in plugin_dir.
var shippedPlugins = []string{"self_managed", "e2b", "aliyun", "daytona", "kubernetes"}

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
	source := "the release " + data.Version
	if data.SDK != "" {
		source = "the clone in " + data.SDK
	}
	_, err = fmt.Fprintf(term.out, "\nThe SDK is that of %s.\nNext: cd %s && go mod tidy && go test ./...\nREADME.md says how to go on.\n", source, shellWord(dir))
	return err
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./+:@%,=-]+$`)

// shellWord writes a path so that it can be pasted into a shell.
func shellWord(path string) string {
	if plainWord.MatchString(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func (c *pluginNewCommand) data() (skeletonData, error) {
	if err := config.CheckProviderName(c.Name); err != nil {
		return skeletonData{}, fmt.Errorf("that cannot be the name of a plugin: %w", err)
	}
	if slices.Contains(shippedPlugins, c.Name) {
		return skeletonData{}, fmt.Errorf("that cannot be the name of a plugin: %q comes with the broker, and both would be one file in plugin_dir", c.Name)
	}
	data := skeletonData{Name: c.Name, Module: c.Module, Go: skeletonGo, TokenVariable: strings.ToUpper(c.Name) + "_TOKEN"}
	if data.Module == "" {
		data.Module = "example.org/" + c.Name
	}
	if err := module.CheckPath(data.Module); err != nil {
		return skeletonData{}, fmt.Errorf("that cannot be a Go module; --module names another, such as example.org/my-plugin: %w", err)
	}
	if data.Module == sdkModule {
		return skeletonData{}, fmt.Errorf("--module: %s is the broker's own module", sdkModule)
	}
	var err error
	data.SDK, data.Version, err = c.sdk()
	return data, err
}

// sdk returns the clone or the release that the plugin is built against. A program
// that was built in a clone belongs to that one, whatever version it says it is: the
// version need not be published.
func (c *pluginNewCommand) sdk() (clone, version string, err error) {
	if c.SDK != "" {
		clone, err = cloneAt(c.SDK)
		if err != nil {
			return "", "", fmt.Errorf("--sdk: %w", err)
		}
		return clone, "", nil
	}
	if program, err := os.Executable(); err == nil {
		if program, err = filepath.EvalSymlinks(program); err == nil {
			if clone, ok := cloneAround(filepath.Dir(program)); ok {
				return clone, "", nil
			}
		}
	}
	if release.MatchString(buildVersion()) {
		return "", buildVersion(), nil
	}
	if here, err := os.Getwd(); err == nil {
		if clone, ok := cloneAround(here); ok {
			return clone, "", nil
		}
	}
	return "", "", fmt.Errorf("this program (%s) is no release whose SDK could be downloaded: name a clone of the broker's repository with --sdk", buildVersion())
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
	templates, err := template.New("").Delims("[[", "]]").Funcs(template.FuncMap{"quote": modfile.AutoQuote}).Option("missingkey=error").ParseFS(skeleton, "skeleton/*.tmpl")
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
