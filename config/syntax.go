package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Syntax reads the syntax of a configuration file and nothing of its meaning.
// With errors the body is not to be used.
func Syntax(name string, text []byte) (*hclsyntax.Body, Diagnostics) {
	p, err := newParser(name, []Option{WithContent(name, text)})
	if err != nil {
		return nil, unreadable(name, err)
	}
	p.open(p.main, FileMain, hcl.Range{})
	p.diags.sort()
	return p.main.body, p.diags
}

// Format lays a configuration file out as everybody does: two spaces for each
// level, equals signs of neighbors below each other. Nothing else changes. With
// errors in the syntax there is no result.
func Format(name string, text []byte) ([]byte, Diagnostics) {
	if _, diags := Syntax(name, text); diags.HasErrors() {
		return nil, diags
	}
	return hclwrite.Format(text), nil
}
