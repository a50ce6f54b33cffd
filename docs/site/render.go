package site

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// ours renders what goldmark's own renderers would give an inline style, or which could not
// be read with a keyboard and on a small screen.
type ours struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (ours) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, code)
	r.Register(ast.KindCodeBlock, code)
	r.Register(ast.KindHTMLBlock, knownHTML)
	r.Register(ast.KindRawHTML, knownHTML)
	r.Register(tables.KindTable, around("<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">\n<table>\n", "</tbody>\n</table>\n</div>\n"))
	r.Register(tables.KindTableHeader, tableHeader)
	r.Register(tables.KindTableRow, around("<tr>", "</tr>\n"))
	r.Register(tables.KindTableCell, tableCell)
}

func around(before, after string) renderer.NodeRendererFunc {
	return func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		_, err := w.WriteString(map[bool]string{true: before, false: after}[entering])
		return ast.WalkContinue, err
	}
}

// tableHeader leaves out a header that says nothing, which Markdown cannot.
func tableHeader(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	var said strings.Builder
	words(&said, n, source)
	if strings.TrimSpace(said.String()) == "" {
		if !entering {
			return ast.WalkContinue, nil
		}
		_, err := w.WriteString("<tbody>\n")
		return ast.WalkSkipChildren, err
	}
	return around("<thead>\n<tr>", "</tr>\n</thead>\n<tbody>\n")(w, source, n, entering)
}

func tableCell(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	tag := "td"
	if n.Parent().Kind() == tables.KindTableHeader && n.FirstChild() != nil {
		tag = "th"
	}
	return around("<"+tag+">", "</"+tag+">")(w, source, n, entering)
}

// knownHTML passes on what onlyKnownHTML has let through, without comments.
func knownHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if found := htmlOf(n, source); entering && opensOut.Match(found) {
		_, err := w.Write(found)
		return ast.WalkSkipChildren, err
	}
	return ast.WalkSkipChildren, nil
}

func code(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		language := ""
		if fenced, ok := n.(*ast.FencedCodeBlock); ok {
			language = string(fenced.Language(source))
		}
		_, err := w.WriteString(codeBlock(language, string(n.Lines().Value(source))))
		return ast.WalkSkipChildren, err
	}
	return ast.WalkSkipChildren, nil
}
