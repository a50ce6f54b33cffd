package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// own begins the paths of modules whose license is in the file LICENSE.
const own = "github.com/sandbox-broker/sandbox-broker"

// licenseFile is the name of a file in the directory of a module that who passes the module
// on has to pass on with it.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// notices are the licenses of all modules that programs are made of, and of Go. Most of these
// licenses ask for that, and texts that several modules have stand there once.
func (r *release) notices(programs []string) ([]byte, error) {
	modules := map[string]bool{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(r.bin, program))
		if err != nil {
			return nil, fmt.Errorf("what is %s made of: %w", program, err)
		}
		for _, m := range append(info.Deps, &info.Main) {
			if m.Replace != nil {
				m = m.Replace
			}
			// What has no version is built here.
			if !strings.HasPrefix(m.Path, own) && m.Version != "" && m.Version != "(devel)" {
				modules[m.Path+"@"+m.Version] = true
			}
		}
	}
	dirs, err := directories(sorted(modules))
	if err != nil {
		return nil, err
	}
	users := map[string][]string{} // of a text
	for module, dir := range dirs {
		text, err := licenses(dir)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return nil, fmt.Errorf("the module %s has no file with its license", module)
		}
		users[text] = append(users[text], module)
	}
	var all []string
	for text, modules := range users {
		slices.Sort(modules)
		all = append(all, strings.Join(modules, "\n")+"\n\n"+text)
	}
	slices.Sort(all)
	return []byte(strings.Join(all, "\n"+strings.Repeat("-", 78)+"\n\n")), nil
}

// directories are those of the sources of modules, and of Go itself.
func directories(modules []string) (map[string]string, error) {
	root, err := goCommand("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{"Go and its standard library": strings.TrimSpace(string(root))}
	if len(modules) == 0 {
		return dirs, nil
	}
	list, err := goCommand(append([]string{"mod", "download", "-json"}, modules...)...)
	if err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var module struct{ Path, Version, Dir string }
		err := decoder.Decode(&module)
		if errors.Is(err, io.EOF) {
			return dirs, nil
		}
		if err != nil {
			return nil, err
		}
		dirs[module.Path+"@"+module.Version] = module.Dir
	}
}

func goCommand(args ...string) ([]byte, error) {
	command := exec.Command("go", args...)
	command.Dir = os.TempDir() // of no module
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, said.String())
	}
	return out, nil
}

// licenses are the texts in the directory of a module.
func licenses(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && licenseFile.MatchString(entry.Name()) && filepath.Ext(entry.Name()) != ".go" {
			text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return "", err
			}
			texts = append(texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))+"\n")
		}
	}
	return strings.Join(texts, "\n"), nil
}
