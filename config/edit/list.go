package edit

import (
	"bytes"
	"encoding/hex"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// tokensSetting is where a tenant's token sums stand.
const tokensSetting = "token_sha256"

// AddTenant adds a block for a tenant with the SHA-256 sums of its tokens.
func (d *Document) AddTenant(name string, tokens ...[32]byte) error {
	if err := d.Add(Tenant(name)); err != nil {
		return err
	}
	sums := make([]string, len(tokens))
	for i, token := range tokens {
		sums[i] = hex.EncodeToString(token[:])
	}
	value, err := Literal(sums)
	if err != nil {
		return err
	}
	return d.Set(Tenant(name), tokensSetting, value)
}

// AddToken adds the SHA-256 sum of a token to those of a tenant.
func (d *Document) AddToken(tenant string, token [32]byte) error {
	return d.appendItem(Tenant(tenant), tokensSetting, hex.EncodeToString(token[:]))
}

// RemoveToken removes the SHA-256 sum of a token from those of a tenant. The
// comments at the others stay.
func (d *Document) RemoveToken(tenant string, token [32]byte) error {
	return d.removeItem(Tenant(tenant), tokensSetting, hex.EncodeToString(token[:]))
}

// list returns the list that a setting is written as.
func (d *Document) list(b Block, setting string) (*file, *hclsyntax.TupleConsExpr, error) {
	f, block, ok := d.find(b)
	if !ok {
		return nil, nil, missing(b)
	}
	attr, given := block.Body.Attributes[setting]
	if !given {
		return f, nil, nil
	}
	list, ok := attr.Expr.(*hclsyntax.TupleConsExpr)
	if !ok {
		return nil, nil, f.refuseComputed(setting, attr.Expr.Range())
	}
	return f, list, nil
}

func (d *Document) appendItem(b Block, setting, item string) error {
	f, list, err := d.list(b, setting)
	if err != nil {
		return err
	}
	value, err := Literal(item)
	if err != nil {
		return err
	}
	if list == nil {
		only, err := Literal([]string{item})
		if err != nil {
			return err
		}
		return d.Set(b, setting, only)
	}
	if len(list.Exprs) == 0 {
		at := list.OpenRange.End.Byte
		return f.splice(at, at, value.text)
	}
	last := list.Exprs[len(list.Exprs)-1].Range()
	end := last.End.Byte
	comma := f.commaAfter(last.End.Byte, list.SrcRange.End.Byte)
	if comma > 0 {
		end = comma
	}
	if last.End.Line == list.SrcRange.End.Line { // the bracket is in the same line
		if comma > 0 {
			return f.splice(end, end, " "+value.text+",")
		}
		return f.splice(end, end, ", "+value.text)
	}
	// A line of its own, behind the comment at the last one.
	next := f.lineEnd(end)
	rest := string(f.text[end:next])
	if comma == 0 {
		rest = "," + rest
	}
	return f.splice(end, next, rest+f.indentation(last.Start.Byte)+value.text+",\n")
}

func (d *Document) removeItem(b Block, setting, item string) error {
	f, list, err := d.list(b, setting)
	if err != nil {
		return err
	}
	if list != nil {
		for i, expr := range list.Exprs {
			if value, diags := expr.Value(nil); !diags.HasErrors() && value.Type() == cty.String && !value.IsNull() && strings.EqualFold(value.AsString(), item) {
				return f.removeFrom(list, i)
			}
		}
	}
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, setting, "%s has no such item, or computes it", b)
}

// removeFrom takes an item out of a list.
func (f *file) removeFrom(list *hclsyntax.TupleConsExpr, i int) error {
	item := list.Exprs[i].Range()
	end := item.End.Byte
	comma := f.commaAfter(end, list.SrcRange.End.Byte)
	if comma > 0 {
		end = comma
	}
	lineStart, lineEnd := f.lineStart(item.Start.Byte), f.lineEnd(end)
	ownLine := f.blank(lineStart, item.Start.Byte) && f.restIsComment(end, lineEnd)
	switch {
	case ownLine:
		return f.splice(lineStart, lineEnd, "")
	case comma == 0 && i > 0: // the last one takes the comma before it along
		return f.splice(list.Exprs[i-1].Range().End.Byte, item.End.Byte, "")
	default:
		for end < len(f.text) && f.text[end] == ' ' && comma > 0 && i < len(list.Exprs)-1 {
			end++
		}
		return f.splice(item.Start.Byte, end, "")
	}
}

// restIsComment reports whether nothing but a comment stands in a part of a line.
func (f *file) restIsComment(start, end int) bool {
	rest := bytes.TrimSpace(f.text[start:end])
	return len(rest) == 0 || bytes.HasPrefix(rest, []byte("#")) || bytes.HasPrefix(rest, []byte("//"))
}

// commaAfter returns the offset behind the first comma between two offsets, 0 if
// there is none. Brackets and comments may stand between an item and its comma.
func (f *file) commaAfter(start, end int) int {
	tokens, _ := hclsyntax.LexExpression(f.text[start:end], f.name, hcl.InitialPos)
	for _, token := range tokens {
		if token.Type == hclsyntax.TokenComma {
			return start + token.Range.End.Byte
		}
	}
	return 0
}
