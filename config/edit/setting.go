package edit

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Set gives a setting of a block a value, in place of the one that it has if it
// has one. Blocks without a label are made if need be, the others must be there.
//
// A value that the file computes, by env() for example, is not overwritten (SB014):
// its author wanted it to come from there. Overwrite does. A sealed value is a
// value like others. A literal that is the same already stays as it is written.
func (d *Document) Set(b Block, setting string, value Value) error {
	return d.set(b, setting, value, false)
}

// Overwrite is Set that also replaces what the file computes.
func (d *Document) Overwrite(b Block, setting string, value Value) error {
	return d.set(b, setting, value, true)
}

func (d *Document) set(b Block, setting string, value Value, overwrite bool) error {
	if !hclsyntax.ValidIdentifier(setting) {
		return sdk.Errorf(sdk.CodeInvalidRequest, "%q is not the name of a setting", setting)
	}
	f, block, ok := d.find(b)
	if !ok && (b.Label == "" || len(b.Within) > 0) {
		if err := d.Add(b); err != nil {
			return err
		}
		f, block, ok = d.find(b)
	}
	if !ok {
		return missing(b)
	}
	attr, given := block.Body.Attributes[setting]
	if !given {
		return d.insert(b, setting, value)
	}
	if same(attr.Expr, value) {
		return nil
	}
	if !overwrite && computed(attr.Expr) {
		return f.refuseComputed(setting, attr.Expr.Range())
	}
	rng := attr.Expr.Range()
	return f.splice(rng.Start.Byte, rng.End.Byte, indented(value.text, f.indentation(attr.NameRange.Start.Byte)))
}

func (f *file) refuseComputed(setting string, rng hcl.Range) error {
	return sdk.FieldErrorf(sdk.CodeConflict, setting, "the file computes this value, by env() for example; change it in %s", f.place(rng))
}

// insert adds a setting behind the last one of a block.
func (d *Document) insert(b Block, setting string, value Value) error {
	f, block, _ := d.find(b)
	if err := f.expand(block); err != nil {
		return err
	}
	f, block, _ = d.find(b)
	at := f.lineEnd(block.OpenBraceRange.End.Byte)
	indentation, padding := f.inside(block), ""
	if last := lastAttribute(block.Body); last != nil {
		at = f.lineEnd(last.SrcRange.End.Byte)
		indentation = f.indentation(last.NameRange.Start.Byte)
		// Its equals sign stands under that of the setting above if there is room.
		if width := last.EqualsRange.Start.Byte - last.NameRange.Start.Byte - 1; width > len(setting) {
			padding = strings.Repeat(" ", width-len(setting))
		}
	}
	return f.splice(at, at, indentation+setting+padding+" = "+indented(value.text, indentation)+"\n")
}

func lastAttribute(body *hclsyntax.Body) *hclsyntax.Attribute {
	var last *hclsyntax.Attribute
	for _, attr := range body.Attributes {
		if last == nil || attr.SrcRange.Start.Byte > last.SrcRange.Start.Byte {
			last = attr
		}
	}
	return last
}

// Unset removes a setting from a block, with the comments directly above and
// behind it. One that is not given is no mistake. What the file computes goes too:
// whoever wants the default does not want that.
func (d *Document) Unset(b Block, setting string) error {
	f, block, ok := d.find(b)
	if !ok {
		return missing(b)
	}
	attr, given := block.Body.Attributes[setting]
	if !given {
		return nil
	}
	if f.oneLine(block) {
		return f.splice(block.OpenBraceRange.End.Byte, block.CloseBraceRange.Start.Byte, "")
	}
	return f.splice(f.leadComments(attr.NameRange.Start.Byte), f.lineEnd(attr.SrcRange.End.Byte), "")
}

// same reports whether an expression is the literal that a value is.
func same(expr hclsyntax.Expression, value Value) bool {
	if value.literal == cty.NilVal || computed(expr) {
		return false
	}
	existing, diags := expr.Value(nil)
	return !diags.HasErrors() && existing.RawEquals(value.literal)
}

// computed reports whether an expression is more than literals and sealed values.
func computed(expr hclsyntax.Expression) bool {
	found := false
	_ = hclsyntax.VisitAll(expr, func(node hclsyntax.Node) hcl.Diagnostics {
		switch n := node.(type) {
		case *hclsyntax.FunctionCallExpr:
			found = found || n.Name != "sealed"
		case *hclsyntax.ConditionalExpr, *hclsyntax.BinaryOpExpr, *hclsyntax.ForExpr, *hclsyntax.SplatExpr:
			found = true
		}
		return nil
	})
	return found
}

// Computed reports whether the file computes a setting's value, so that Set would
// not change it. A setting that is not given is not computed.
func (d *Document) Computed(b Block, setting string) bool {
	_, block, ok := d.find(b)
	if !ok {
		return false
	}
	attr, given := block.Body.Attributes[setting]
	return given && computed(attr.Expr)
}
