package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// nestedBlock is a block within that of a provider.
type nestedBlock struct {
	header, typeRange hcl.Range
	attributes        []attribute
}

// Limits on the blocks within one provider's.
const (
	maxNestedDepth  = 3
	maxNestedBlocks = 1000
)

// readNested reads the blocks of a body, which belong to the plugin: only its schema says
// what they are. Blocks of one type are one attribute.
func (p *parser) readNested(body *hclsyntax.Body, given []attribute, depth int, count *int) []attribute {
	var nested []attribute
	for _, block := range body.Blocks {
		*count++
		switch {
		case len(block.Labels) > 0:
			p.fail(block.LabelRanges[0], "Label not expected", fmt.Sprintf("A block of a plugin has no label: write %s { ... }.", block.Type))
			continue
		case depth == maxNestedDepth:
			p.fail(block.TypeRange, "Blocks nested too deep", fmt.Sprintf("Blocks of a plugin are at most %d deep.", maxNestedDepth))
			continue
		case *count > maxNestedBlocks:
			p.fail(block.TypeRange, "Too many blocks", fmt.Sprintf("A provider has at most %d blocks within its own.", maxNestedBlocks))
			return nested
		}
		if a, twice := find(given, block.Type); twice {
			p.fail(block.TypeRange, "Setting given twice", fmt.Sprintf("%s is given at %s already.", block.Type, placeFrom(a.nameRange, block.TypeRange)))
			continue
		}
		one := nestedBlock{header: block.DefRange(), typeRange: block.TypeRange}
		one.attributes = p.evaluate(block.Body)
		one.attributes = append(one.attributes, p.readNested(block.Body, one.attributes, depth+1, count)...)
		i := slices.IndexFunc(nested, func(a attribute) bool { return a.name == block.Type })
		if i < 0 {
			i = len(nested)
			nested = append(nested, attribute{name: block.Type, nameRange: block.TypeRange, value: []any{}})
		}
		nested[i].addBlock(one)
	}
	return nested
}

// addBlock adds a block, and what holds of any of its settings holds of the whole.
func (a *attribute) addBlock(block nestedBlock) {
	values := map[string]any{}
	for _, inner := range block.attributes {
		values[inner.name] = inner.value
		a.sensitive = a.sensitive || inner.sensitive
		a.broken = a.broken || inner.broken
	}
	a.blocks = append(a.blocks, block)
	a.value = append(a.value.([]any), values)
}

// valueRange is where the value stands, or the first of the blocks.
func (a attribute) valueRange() hcl.Range {
	if a.expr == nil {
		return a.nameRange
	}
	return a.expr.Range()
}

// leaves are the attributes and those of blocks in place of the blocks.
func leaves(attributes []attribute) []attribute {
	var all []attribute
	for _, a := range attributes {
		if a.blocks == nil {
			all = append(all, a)
		}
		for _, block := range a.blocks {
			all = append(all, leaves(block.attributes)...)
		}
	}
	return all
}

// valueFor is the value as the schema of the field takes it.
func (a attribute) valueFor(f sdk.Field) any {
	if list, ok := a.value.([]any); ok && a.blocks != nil && !f.Repeated && len(list) == 1 {
		return blockValue(list[0], f.Fields)
	} else if ok && a.blocks != nil && f.Repeated {
		blocks := make([]any, len(list))
		for i, item := range list {
			blocks[i] = blockValue(item, f.Fields)
		}
		return blocks
	}
	return a.value
}

// resolveBlocks checks the blocks of a field and puts them into settings.
func (r *reporter) resolveBlocks(f sdk.Field, attributes []attribute, header hcl.Range, prefix string, settings sdk.Settings) {
	path := prefix + f.Name
	a, given := find(attributes, f.Name)
	switch {
	case !given || a.blocks == nil && a.value == nil && !a.broken:
		if f.Required {
			r.fail(header, "Missing block", described(fmt.Sprintf("The block %s is required.", f.Name), f))
			r.about(path)
		} else if err := f.CheckCount(0); err != nil {
			r.fail(header, "Missing block", described(fmt.Sprintf("%s %s.", f.Name, err), f))
			r.about(path)
		}
		return
	case a.blocks == nil:
		if !a.broken {
			r.fail(a.nameRange, "Setting not expected", described(fmt.Sprintf("%s is a block: write it without an equals sign, %s { ... }.", f.Name, f.Name), f))
			r.about(path)
		}
		return
	}
	if !f.Repeated && len(a.blocks) > 1 {
		r.fail(a.blocks[1].header, "Block given twice", fmt.Sprintf("The block %s stands at %s already. Merge the two.", f.Name, placeFrom(a.blocks[0].header, a.blocks[1].header)))
		r.about(path)
		return
	}
	if f.Repeated {
		if err := f.CheckCount(len(a.blocks)); err != nil {
			r.fail(a.blocks[0].header, "Invalid number of blocks", described(fmt.Sprintf("%s %s.", f.Name, err), f))
			r.about(path)
			return
		}
	}
	var blocks []sdk.Settings
	for i, block := range a.blocks {
		within := path + "."
		if f.Repeated {
			within = fmt.Sprintf("%s[%d].", path, i)
		}
		blocks = append(blocks, r.resolveWithin(f.Fields, block.attributes, block.header, within))
	}
	if f.Repeated {
		settings[f.Name] = blocks
	} else {
		settings[f.Name] = blocks[0]
	}
}

// described is a detail with what its field is.
func described(detail string, f sdk.Field) string {
	if f.Description == "" {
		return detail
	}
	return detail + " " + f.Description
}

// blockMistake reports a block where the schema has a setting. It reports whether it is one.
func (r *reporter) blockMistake(f sdk.Field, a attribute, path string) bool {
	if a.blocks == nil {
		return false
	}
	r.fail(a.nameRange, "Block not expected", fmt.Sprintf("%s is a setting: write it with an equals sign, %s = ...", f.Name, f.Name))
	r.about(path)
	return true
}

// unknown reports what the schema does not have.
func (r *reporter) unknown(a attribute, schema sdk.Schema, prefix string) {
	if a.blocks == nil {
		r.fail(a.nameRange, "Unknown setting", unknownName("setting", a.name, names(schema)))
		return
	}
	var known []string
	for _, f := range schema {
		if f.Type == sdk.TypeBlock {
			known = append(known, f.Name)
		}
	}
	if len(known) == 0 {
		whose := "This provider"
		if prefix != "" {
			whose = "This block"
		}
		r.fail(a.nameRange, "Block not expected", whose+" holds no other blocks. A map is written with an equals sign, name = { ... }.")
		return
	}
	r.fail(a.nameRange, "Unknown block", unknownName("block", a.name, known))
}

// leaf is the setting at a path.
type leaf struct {
	// path of what was found, which may be a block around what was looked for.
	path  string
	field sdk.Field
	// given says that it stands in the file, as attribute or, if it does not, that the
	// block does that it would stand in: at place.
	given     bool
	attribute attribute
	place     hcl.Range
}

var pathStep = regexp.MustCompile(`^([a-z][a-z0-9_]*)(?:\[(\d+)\])?\.?`)

// locate follows a path such as rules[0].port as far as the schema and the file know it.
// What stands behind the name of a map belongs to no path of the schema.
func locate(schema sdk.Schema, attributes []attribute, path string, header hcl.Range) (leaf, bool) {
	found, known := leaf{place: header}, false
	for prefix := ""; ; {
		step := pathStep.FindStringSubmatch(path)
		if step == nil {
			return found, known
		}
		field, ok := schema.Field(step[1])
		if !ok {
			return found, known
		}
		known = true
		found.field, found.path = field, prefix+field.Name
		found.attribute, found.given = find(attributes, field.Name)
		if !found.given {
			return found, known
		}
		found.place = found.attribute.valueRange()
		i, _ := strconv.Atoi(step[2])
		if field.Type != sdk.TypeBlock || i >= len(found.attribute.blocks) {
			return found, known
		}
		block := found.attribute.blocks[i]
		found.place = block.header
		schema, attributes = field.Fields, block.attributes
		if field.Repeated {
			found.path = fmt.Sprintf("%s[%d]", found.path, i)
		}
		prefix, path = found.path+".", strings.TrimPrefix(path, step[0])
	}
}

// blockValue is the value of one block whose inner blocks are as their schema takes them.
func blockValue(value any, schema sdk.Schema) any {
	given, ok := value.(map[string]any)
	if !ok {
		return value
	}
	shaped := make(map[string]any, len(given))
	for name, inner := range given {
		if f, known := schema.Field(name); known && f.Type == sdk.TypeBlock {
			a := attribute{value: inner, blocks: []nestedBlock{}}
			inner = a.valueFor(f)
		}
		shaped[name] = inner
	}
	return shaped
}

// attributeAt follows a path as far as the file has it.
func attributeAt(attributes []attribute, path string) (attribute, bool) {
	for {
		step := pathStep.FindStringSubmatch(path)
		if step == nil {
			return attribute{}, false
		}
		a, ok := find(attributes, step[1])
		path = strings.TrimPrefix(path, step[0])
		if !ok || path == "" {
			return a, ok
		}
		i, _ := strconv.Atoi(step[2])
		if i >= len(a.blocks) {
			return attribute{}, false
		}
		attributes = a.blocks[i].attributes
	}
}
