package site

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"
)

// listed shows a directory. Names are relative to it.
var listed = template.Must(template.New("directory").Parse(
	"<h1>{{.Name}}</h1>\n<p>A directory of the repository.</p>\n<ul>\n{{range .Entries}}<li>{{if .Href}}<a href=\"{{.Href}}\">{{.Name}}</a>{{else}}{{.Name}}{{end}}</li>\n{{end}}</ul>\n"))

// show makes what the site has of a file or directory that is no page.
func (b *builder) show(file string) error {
	info, err := fs.Stat(b.repository, file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return b.showDirectory(file)
	}
	content, err := fs.ReadFile(b.repository, file)
	switch {
	case err != nil:
		return err
	case isMedia(file):
		b.files[file] = content
		return nil
	case !b.isText(file):
		return fmt.Errorf("%s: only text can be shown", file)
	}
	var body bytes.Buffer
	fmt.Fprintf(&body, "<h1>%s</h1>\n", template.HTMLEscapeString(file))
	body.WriteString(codeBlock(languageOf(file), string(content)))
	return b.layOut(hrefOf(file), shown{Title: file, Path: file, Body: template.HTML(body.String())})
}

// showDirectory lists what is in a directory. Its files get pages, its directories only
// where a page links to them.
func (b *builder) showDirectory(directory string) error {
	entries, err := fs.ReadDir(b.repository, directory)
	if err != nil {
		return err
	}
	type entry struct{ Name, Href string }
	var all []entry
	for _, e := range entries {
		name := e.Name()
		file := path.Join(directory, name)
		switch {
		case name == "node_modules" || strings.HasPrefix(name, "."):
		case e.IsDir():
			all = append(all, entry{Name: name + "/"})
		case b.pages[file] != nil:
			all = append(all, entry{name, path.Base(b.pages[file].href)})
		case b.isText(file):
			b.needs(file)
			all = append(all, entry{name, path.Base(hrefOf(file))})
		}
	}
	var body bytes.Buffer
	if err := listed.Execute(&body, struct {
		Name    string
		Entries []entry
	}{directory, all}); err != nil {
		return err
	}
	return b.layOut(directory+"/index.html", shown{Title: directory, Path: directory, Body: template.HTML(body.String())})
}

// isText reports whether a file can be shown: what is built beside the sources cannot.
func (b *builder) isText(file string) bool {
	content, err := fs.ReadFile(b.repository, file)
	return err == nil && utf8.Valid(content) && !bytes.Contains(content, []byte{0})
}
