package site

import (
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
)

//go:embed assets
var assets embed.FS

// marker is in each directory that Write has made, and tells them from others.
const marker = "made-by-docs-site"

// builder holds what is made while a site is built. Paths are those of the repository, with
// slashes.
type builder struct {
	repository fs.FS
	source     string
	layout     *template.Template
	pages      map[string]*page
	navigation []group
	// wanted are files and directories of the repository that pages link to and that are not
	// made yet.
	wanted []string
	files  map[string][]byte
}

// Build makes the site of the repository at root and returns its files by their path. With a
// source, which is the beginning of a URL, links to files that are no pages lead there.
// Without one the site has a page for each of them. The error names every link that leads
// nowhere.
func Build(root, source string) (map[string][]byte, error) {
	if source != "" && !strings.HasSuffix(source, "/") {
		return nil, fmt.Errorf("the source %q must end with a slash: the path of a file is put behind it", source)
	}
	layout, err := template.ParseFS(assets, "assets/page.html")
	if err != nil {
		return nil, err
	}
	b := &builder{repository: os.DirFS(root), source: source, layout: layout, pages: map[string]*page{}, files: map[string][]byte{}}
	if err := b.read(root); err != nil {
		return nil, err
	}
	if b.navigation, err = b.navigationOf(index); err != nil {
		return nil, err
	}
	var problems []error
	order := slices.Sorted(maps.Keys(b.pages))
	for _, path := range order {
		problems = append(problems, b.connect(b.pages[path]))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, path := range order {
		if err := b.write(b.pages[path]); err != nil {
			return nil, err
		}
	}
	for len(b.wanted) > 0 {
		next := b.wanted[0]
		b.wanted = b.wanted[1:]
		if err := b.show(next); err != nil {
			return nil, err
		}
	}
	if b.files["search-index.js"], err = searchIndex(b.pages, order); err != nil {
		return nil, err
	}
	for _, name := range []string{"style.css", "search.js"} {
		if b.files[name], err = assets.ReadFile("assets/" + name); err != nil {
			return nil, err
		}
	}
	b.files[marker] = []byte("`make site` removes this directory before it writes it anew.\n")
	return b.files, nil
}

// read reads all pages.
func (b *builder) read(root string) error {
	paths, err := markdown.Pages(root)
	if err != nil {
		return err
	}
	for _, file := range paths {
		below, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		p, err := parse(filepath.ToSlash(below), text)
		if err != nil {
			return err
		}
		b.pages[p.path] = p
	}
	return nil
}

// Write writes the files of a site into a directory. What is there before is removed if Write
// has made it; any other directory must be empty.
func Write(directory string, files map[string][]byte) error {
	there, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(there) > 0 && !slices.ContainsFunc(there, func(e fs.DirEntry) bool { return e.Name() == marker }) {
		return fmt.Errorf("%s is not empty and holds no site: name another directory", directory)
	}
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to := filepath.Join(directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// relative is what a file of the site calls another one.
func relative(from, to string) string {
	up := strings.Count(from, "/")
	here, there := strings.Split(path.Dir(from), "/"), strings.Split(to, "/")
	for up > 0 && len(there) > 1 && here[0] == there[0] {
		here, there, up = here[1:], there[1:], up-1
	}
	return strings.Repeat("../", up) + strings.Join(there, "/")
}
