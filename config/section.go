package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// evaluate returns the attributes of a body in the order of the files.
func (p *parser) evaluate(body *hclsyntax.Body) []attribute {
	var attributes []attribute
	for _, attr := range body.Attributes {
		attributes = append(attributes, p.evaluateAttribute(attr, p.documents[attr.NameRange.Filename].eval))
	}
	slices.SortFunc(attributes, func(a, b attribute) int {
		return cmp.Or(
			cmp.Compare(p.sources[a.nameRange.Filename].order, p.sources[b.nameRange.Filename].order),
			cmp.Compare(a.nameRange.Start.Byte, b.nameRange.Start.Byte),
		)
	})
	return attributes
}

func (p *parser) evaluateAttribute(attr *hclsyntax.Attribute, eval *hcl.EvalContext) attribute {
	a := attribute{name: attr.Name, expr: attr.Expr, nameRange: attr.NameRange}
	if p.refuseLoops(attr.Expr) {
		a.broken = true
		return a
	}
	value, diags := attr.Expr.Value(eval)
	p.addHCL(diags)
	plain, marks := value.UnmarkDeep()
	a.sensitive = len(marks) > 0
	_, plainly := marks[ordinary{}]
	a.ordinary = plainly && len(marks) == 1
	switch {
	case diags.HasErrors():
		a.broken = true
	case !plain.IsWhollyKnown():
		a.broken = true
		p.fail(attr.Expr.Range(), "Value not known", "This expression has no value that is known when the file is read.")
	default:
		a.value = goValue(plain)
	}
	return a
}

// refuseLoops keeps the time of an evaluation in proportion to the length of the
// text: loops in each other multiply.
func (p *parser) refuseLoops(expr hclsyntax.Expression) (refused bool) {
	_ = hclsyntax.VisitAll(expr, func(node hclsyntax.Node) hcl.Diagnostics {
		if loop, ok := node.(*hclsyntax.ForExpr); ok && !refused {
			refused = true
			p.fail(loop.OpenRange, "Loop not allowed", "There are no loops in this file. Write the values one by one.")
		}
		return nil
	})
	return refused
}

// section is a group of settings that belong to the broker itself.
type section struct {
	sdk.Settings
	attributes []attribute
}

// setting returns the attribute that gave a setting its value, if one did.
func (s section) setting(name string) (attribute, bool) {
	_, valid := s.Settings[name]
	a, ok := find(s.attributes, name)
	return a, ok && valid && a.value != nil
}

// readSection reads settings of the broker. The header is where a missing one
// is reported.
func (p *parser) readSection(body *hclsyntax.Body, schema sdk.Schema, header hcl.Range) section {
	attributes := p.evaluate(body)
	return section{Settings: p.resolve(schema, attributes, header), attributes: attributes}
}

// readLeaf reads a block that holds settings and no blocks.
func (p *parser) readLeaf(block *hclsyntax.Block, schema sdk.Schema) section {
	p.refuseBlocks(block, schema)
	return p.readSection(block.Body, schema, block.DefRange())
}

func (p *parser) refuseBlocks(block *hclsyntax.Block, schema sdk.Schema) {
	for _, inner := range block.Body.Blocks {
		if _, ok := schema.Field(inner.Type); ok {
			p.fail(inner.TypeRange, "Block not expected", fmt.Sprintf("%s is a setting: write it with an equals sign, %s = ...", inner.Type, inner.Type))
			continue
		}
		p.fail(inner.TypeRange, "Block not expected", fmt.Sprintf("A %s block holds no other blocks. A map is written with an equals sign, name = { ... }.", block.Type))
	}
}

// resolve checks attributes against a schema and reports what is wrong.
func (r *reporter) resolve(schema sdk.Schema, attributes []attribute, header hcl.Range) sdk.Settings {
	return r.resolveWithin(schema, attributes, header, "")
}

// resolveWithin is resolve for a block at a path, which ends with a dot.
func (r *reporter) resolveWithin(schema sdk.Schema, attributes []attribute, header hcl.Range, prefix string) sdk.Settings {
	given, blocks := map[string]any{}, sdk.Settings{}
	var fields sdk.Schema
	for _, f := range schema {
		if f.Type == sdk.TypeBlock {
			r.resolveBlocks(f, attributes, header, prefix, blocks)
			continue
		}
		a, ok := find(attributes, f.Name)
		if ok && r.blockMistake(f, a, prefix+f.Name) {
			continue
		}
		if ok && a.broken {
			continue // reported already, and not missing either
		}
		if ok {
			given[f.Name] = a.value
			f.Secret = f.Secret || a.sensitive
		}
		fields = append(fields, f)
	}
	for _, a := range attributes {
		if _, ok := schema.Field(a.name); !ok {
			r.unknown(a, schema, prefix)
		}
	}
	settings, problems := fields.Resolve(given)
	for _, problem := range problems {
		f, _ := fields.Field(problem.Field)
		detail := fmt.Sprintf("%s %s.", f.Name, problem.Message)
		if f.Description != "" {
			detail += " " + f.Description
		}
		if a, ok := find(attributes, f.Name); ok && a.value != nil {
			r.add(SeverityError, a.expr.Range(), !f.Secret && a.name != tokenSums, "Invalid value", detail)
		} else {
			r.fail(header, "Missing setting", detail)
		}
		r.about(prefix + f.Name)
	}
	maps.Copy(settings, blocks)
	return settings
}

func find(attributes []attribute, name string) (attribute, bool) {
	i := slices.IndexFunc(attributes, func(a attribute) bool { return a.name == name })
	if i < 0 {
		return attribute{}, false
	}
	return attributes[i], true
}

func names(schema sdk.Schema) []string {
	list := make([]string, len(schema))
	for i, f := range schema {
		list[i] = f.Name
	}
	return list
}
