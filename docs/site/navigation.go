package site

import (
	"fmt"
	"path"
	"strings"

	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
)

// index is the page whose table is the navigation of all pages, and whose lists behind it
// are groups of their own.
const index = "docs/README.md"

// group is a part of the navigation.
type group struct {
	name  string
	pages []*page
}

// shownGroup is a group, as one page shows it.
type shownGroup struct {
	Name  string
	Open  bool
	Links []shownLink
}

type shownLink struct {
	Title, Href string
	Here        bool
}

func (g group) from(href string) shownGroup {
	s := shownGroup{Name: g.name}
	for _, p := range g.pages {
		here := p.href == href
		s.Open = s.Open || here
		s.Links = append(s.Links, shownLink{p.title, relative(href, p.href), here})
	}
	return s
}

// navigationOf reads the navigation from a page: each row of its table that has something in
// its first cell begins a group, and so does each list below a heading.
func (b *builder) navigationOf(file string) ([]group, error) {
	p := b.pages[file]
	if p == nil {
		return nil, fmt.Errorf("there is no %s, which would be the navigation", file)
	}
	var groups []group
	under := ""
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			under = p.wordsOf(n)
		case *ast.List:
			groups = append(groups, group{name: under, pages: b.linked(p, n)})
		case *tables.Table:
			for row := n.FirstChild().NextSibling(); row != nil; row = row.NextSibling() {
				if name := p.wordsOf(row.FirstChild()); name != "" {
					groups = append(groups, group{name: upper(name)})
				}
				if len(groups) == 0 {
					return nil, fmt.Errorf("the first row of the table in %s says not for whom it is", file)
				}
				last := &groups[len(groups)-1]
				last.pages = append(last.pages, b.linked(p, row)...)
			}
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("%s has no table of pages", file)
	}
	return groups, nil
}

// linked are the pages that a node has links to, but for the page that it is in.
func (b *builder) linked(p *page, within ast.Node) (pages []*page) {
	_ = ast.Walk(within, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering {
			to, _, _ := strings.Cut(string(link.Destination), "#")
			if other := b.pages[path.Join(path.Dir(p.path), to)]; other != nil && other != p {
				pages = append(pages, other)
			}
		}
		return ast.WalkContinue, nil
	})
	return pages
}

func (p *page) wordsOf(n ast.Node) string {
	var said strings.Builder
	words(&said, n, p.source)
	return strings.TrimSpace(said.String())
}

func upper(name string) string { return strings.ToUpper(name[:1]) + name[1:] }
