package site

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
)

// page is a Markdown file, and what the site makes of it.
type page struct {
	// path in the repository, and href in the site.
	path, href string
	title      string
	source     []byte
	doc        ast.Node
	headings   []heading
	sections   []section
}

// heading is one that links can lead to.
type heading struct {
	Level        int
	Anchor, Text string
}

// section is what stands between two headings, without its signs.
type section struct {
	anchor, title string
	text          strings.Builder
}

var dialect = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(ours{}, 1))),
)

// hrefOf is where the site has a page or another file of the repository.
func hrefOf(file string) string {
	dir, name := path.Split(file)
	switch {
	case name == "README.md":
		return dir + "index.html"
	case path.Ext(name) == ".md":
		return strings.TrimSuffix(file, ".md") + ".html"
	case isMedia(file):
		return file
	default:
		return file + ".html"
	}
}

// isMedia reports whether a browser shows or plays a file as it is.
func isMedia(file string) bool {
	switch path.Ext(file) {
	case ".svg", ".png", ".jpg", ".gif", ".webp", ".webm", ".mp4", ".cast":
		return true
	}
	return false
}

func parse(file string, source []byte) (*page, error) {
	p := &page{path: file, href: hrefOf(file), source: source, doc: dialect.Parser().Parse(text.NewReader(source))}
	seen := map[string]int{}
	p.sections = []section{{}}
	for n := p.doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			words(&p.sections[len(p.sections)-1].text, n, source)
			continue
		}
		var said strings.Builder
		words(&said, h, source)
		title := strings.TrimSpace(said.String())
		anchor := markdown.Anchor(title)
		seen[anchor]++
		if again := seen[anchor] - 1; again > 0 {
			anchor = fmt.Sprintf("%s-%d", anchor, again)
		}
		h.SetAttributeString("id", []byte(anchor))
		p.headings = append(p.headings, heading{h.Level, anchor, title})
		if p.title == "" {
			p.title = title
		}
		p.sections = append(p.sections, section{anchor: anchor, title: title})
	}
	if p.title == "" {
		return nil, fmt.Errorf("%s has no heading, which would be its title", file)
	}
	return p, onlyKnownHTML(p)
}

// words writes what a reader sees of a node.
func words(to *strings.Builder, n ast.Node, source []byte) {
	switch n := n.(type) {
	case *ast.Text:
		to.Write(n.Value(source))
		if n.SoftLineBreak() || n.HardLineBreak() {
			to.WriteByte(' ')
		}
		return
	case *ast.String:
		to.Write(n.Value)
		return
	case *ast.AutoLink:
		to.Write(n.Label(source))
		return
	case *ast.RawHTML, *ast.HTMLBlock:
		return
	}
	if n.Type() == ast.TypeBlock && n.FirstChild() == nil {
		to.Write(n.Lines().Value(source))
	}
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		words(to, child, source)
	}
	if n.Type() == ast.TypeBlock {
		to.WriteByte(' ')
	}
}

// Of HTML the pages have comments, which no reader sees, and parts that open.
var (
	comment  = regexp.MustCompile(`(?s)\A\s*<!--.*?-->\s*\z`)
	opensOut = regexp.MustCompile(`\A(\s*(</?details>|<summary>[^<>]*</summary>))*\s*\z`)
)

// onlyKnownHTML refuses HTML that the site does not pass on.
func onlyKnownHTML(p *page) error {
	return ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		html := htmlOf(n, p.source)
		if entering && html != nil && !comment.Match(html) && !opensOut.Match(html) {
			return ast.WalkStop, fmt.Errorf("%s: only comments, <details> and <summary> can be here, not %q", p.path, bytes.TrimSpace(html))
		}
		return ast.WalkContinue, nil
	})
}

// htmlOf is the HTML that a node is, or nil.
func htmlOf(n ast.Node, source []byte) []byte {
	switch n := n.(type) {
	case *ast.HTMLBlock:
		html := n.Lines().Value(source)
		if n.HasClosure() {
			html = append(html, n.ClosureLine.Value(source)...)
		}
		return html
	case *ast.RawHTML:
		return n.Segments.Value(source)
	}
	return nil
}

// has reports whether a link can lead to an anchor of the page.
func (p *page) has(anchor string) bool {
	for _, h := range p.headings {
		if h.Anchor == anchor {
			return true
		}
	}
	return false
}

// policy lets a page load the site's own files and nothing else. A page that was opened as a
// file is from nowhere for some browsers, for which "self" is no file beside it.
const policy = "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; base-uri 'none'; form-action 'none'"

// shown is what the layout takes.
type shown struct {
	Policy, Title, Path string
	// Root leads to the top of the site.
	Root       string
	Index      string
	Navigation []shownGroup
	Headings   []heading
	Body       template.HTML
}

func (b *builder) write(p *page) error {
	var body bytes.Buffer
	if err := dialect.Renderer().Render(&body, p.source, p.doc); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	var below []heading
	for _, h := range p.headings {
		if h.Level == 2 || h.Level == 3 {
			below = append(below, h)
		}
	}
	// The renderer has escaped all but the few elements that onlyKnownHTML lets through.
	return b.layOut(p.href, shown{Title: p.title, Path: p.path, Headings: below, Body: template.HTML(body.String())})
}

// layOut puts what a page shows into the layout.
func (b *builder) layOut(href string, s shown) error {
	s.Policy, s.Root, s.Index = policy, relative(href, ""), relative(href, hrefOf(index))
	for _, g := range b.navigation {
		s.Navigation = append(s.Navigation, g.from(href))
	}
	var out bytes.Buffer
	if err := b.layout.Execute(&out, s); err != nil {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	if _, twice := b.files[href]; twice {
		return fmt.Errorf("%s: the site has %s already", s.Path, href)
	}
	b.files[href] = out.Bytes()
	return nil
}
