package edit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Block names a block of the configuration.
type Block struct {
	// Type such as provider, tenant or limits.
	Type string
	// Label, "" for a block without one.
	Label string
	// Within is the way to a block within it, the outermost first; nothing for the
	// block itself.
	Within []Step
}

// Step leads from a block to one of those directly within it.
type Step struct {
	Type string
	// Index counts the blocks of this type, from 0.
	Index int
}

// Provider names the block of a provider.
func Provider(label string) Block { return Block{Type: "provider", Label: label} }

// Tenant names the block of a tenant.
func Tenant(name string) Block { return Block{Type: "tenant", Label: name} }

// Template names the block of a template.
func Template(name string) Block { return Block{Type: "template", Label: name} }

// Quota names the block with the quotas of a tenant.
func Quota(tenant string) Block { return Tenant(tenant).In("quota", 0) }

// Providers names the block that says which provider serves.
func Providers() Block { return Block{Type: "providers"} }

// String is the block as it stands in the file.
func (b Block) String() string {
	name := b.Type
	if b.Label != "" {
		name = fmt.Sprintf("%s %q", b.Type, b.Label)
	}
	for _, step := range b.Within {
		name += " " + step.Type
		if step.Index > 0 {
			name += fmt.Sprintf("[%d]", step.Index)
		}
	}
	return name
}

// In names a block directly within this one, by its type and its place among those of
// the same type.
func (b Block) In(blockType string, index int) Block {
	b.Within = append(slices.Clone(b.Within), Step{blockType, index})
	return b
}

// outer is the block that this one stands in, and the step from there.
func (b Block) outer() (Block, Step) {
	last := len(b.Within) - 1
	return Block{Type: b.Type, Label: b.Label, Within: b.Within[:last]}, b.Within[last]
}

func (b Block) is(block *hclsyntax.Block) bool {
	switch {
	case block.Type != b.Type:
		return false
	case b.Label == "":
		return len(block.Labels) == 0
	default:
		return len(block.Labels) == 1 && block.Labels[0] == b.Label
	}
}

// find returns a block and its file.
func (d *Document) find(b Block) (*file, *hclsyntax.Block, bool) {
	for _, f := range d.files {
		for _, block := range f.body.Blocks {
			if !b.is(block) {
				continue
			}
			for _, step := range b.Within {
				inner := blocksOf(block.Body, step.Type)
				if step.Index < 0 || step.Index >= len(inner) {
					return f, nil, false
				}
				block = inner[step.Index]
			}
			return f, block, true
		}
	}
	return nil, nil, false
}

// blocksOf are the blocks of a type directly in a body, in their order.
func blocksOf(body *hclsyntax.Body, blockType string) []*hclsyntax.Block {
	var all []*hclsyntax.Block
	for _, block := range body.Blocks {
		if block.Type == blockType && len(block.Labels) == 0 {
			all = append(all, block)
		}
	}
	return all
}

// Count is how many blocks of a type stand directly in a block; 0 if that is not there.
func (d *Document) Count(b Block, blockType string) int {
	_, block, ok := d.find(b)
	if !ok {
		return 0
	}
	return len(blocksOf(block.Body, blockType))
}

// Has reports whether there is such a block.
func (d *Document) Has(b Block) bool {
	_, _, ok := d.find(b)
	return ok
}

// Add puts an empty block behind the last of its type, or else at the end of the
// main file. A block within another one goes behind the last of its type there, or else
// to the end; those around it are made if need be, but for the outermost.
func (d *Document) Add(b Block) error {
	if d.Has(b) {
		return sdk.Errorf(sdk.CodeConflict, "there is a block %s already", b)
	}
	if len(b.Within) > 0 {
		return d.addInner(b)
	}
	header := b.Type
	if b.Label != "" {
		header += " " + quoted(b.Label)
	}
	f, at := d.files[0], len(d.files[0].text)
	for _, candidate := range d.files {
		for _, block := range candidate.body.Blocks {
			if block.Type == b.Type {
				f, at = candidate, candidate.lineEnd(block.CloseBraceRange.End.Byte)
			}
		}
	}
	before, after := "\n", ""
	if at == 0 {
		before = ""
	} else if f.text[at-1] != '\n' {
		before = "\n\n"
	}
	if at < len(f.text) && !f.blank(at, f.lineEnd(at)) {
		after = "\n"
	}
	return f.splice(at, at, before+header+" {\n}\n"+after)
}

func (d *Document) addInner(b Block) error {
	around, step := b.outer()
	if n := d.Count(around, step.Type); step.Index != n || !hclsyntax.ValidIdentifier(step.Type) {
		return sdk.Errorf(sdk.CodeInvalidRequest, "there is no place for a block %s", b)
	}
	if !d.Has(around) {
		if len(around.Within) == 0 {
			return missing(around)
		}
		if err := d.addInner(around); err != nil {
			return err
		}
	}
	f, outer, _ := d.find(around)
	if err := f.expand(outer); err != nil {
		return err
	}
	f, outer, _ = d.find(around)
	if siblings := blocksOf(outer.Body, step.Type); len(siblings) > 0 {
		last := siblings[len(siblings)-1]
		start := f.leadComments(last.TypeRange.Start.Byte)
		before := ""
		if start > 0 && f.blank(f.lineStart(start-1), start) { // they stand apart
			before = "\n"
		}
		end := f.lineEnd(last.CloseBraceRange.End.Byte)
		return f.splice(end, end, before+f.emptyBlock(step.Type, f.indentation(last.TypeRange.Start.Byte)))
	}
	end := f.lineStart(outer.CloseBraceRange.Start.Byte)
	before := ""
	if !f.blank(outer.OpenBraceRange.End.Byte, end) {
		before = "\n"
	}
	return f.splice(end, end, before+f.emptyBlock(step.Type, f.inside(outer)))
}

// Insert puts an empty block in the place of one within a block, in front of it and of
// the comment directly above it. The place behind the last is one too.
func (d *Document) Insert(b Block) error {
	f, next, ok := d.find(b)
	if !ok || len(b.Within) == 0 {
		return d.Add(b)
	}
	start, after := f.leadComments(next.TypeRange.Start.Byte), ""
	if start > 0 && f.blank(f.lineStart(start-1), start) {
		after = "\n"
	}
	return f.splice(start, start, f.emptyBlock(next.Type, f.indentation(next.TypeRange.Start.Byte))+after)
}

// emptyBlock is the text of a block with room in it.
func (f *file) emptyBlock(blockType, indentation string) string {
	return indentation + blockType + " {\n" + indentation + "}\n"
}

// inside is the indentation of what stands in a block: that of what does, if anything.
func (f *file) inside(block *hclsyntax.Block) string {
	if last := lastAttribute(block.Body); last != nil {
		return f.indentation(last.NameRange.Start.Byte)
	}
	if blocks := block.Body.Blocks; len(blocks) > 0 {
		return f.indentation(blocks[len(blocks)-1].TypeRange.Start.Byte)
	}
	return f.indentation(block.TypeRange.Start.Byte) + "  "
}

// Remove takes a block out, with the comment directly above it.
func (d *Document) Remove(b Block) error {
	f, block, ok := d.find(b)
	if !ok {
		return missing(b)
	}
	start, end := f.leadComments(block.TypeRange.Start.Byte), f.lineEnd(block.CloseBraceRange.End.Byte)
	// One blank line stays of those around it.
	above := f.lineStart(max(start-1, 0))
	blankAbove := start == 0 || f.blank(above, start)
	switch next := f.lineEnd(end); {
	case blankAbove && end < len(f.text) && f.blank(end, next):
		end = next
	case end == len(f.text) && start > 0 && f.blank(above, start):
		start = above
	case len(b.Within) > 0 && f.blank(above, start) && bytes.HasPrefix(bytes.TrimSpace(f.text[end:next]), []byte("}")):
		start = above
	}
	rest := ""
	if f.blank(0, start) && f.blank(end, len(f.text)) {
		// A file without any content counts as one that is about to be written.
		rest = "# The last block of this file was removed.\n"
	}
	return f.splice(start, end, rest)
}

// RemoveIfEmpty takes a block out that has nothing in it, no comment either. One that
// is not there is no mistake.
func (d *Document) RemoveIfEmpty(b Block) error {
	f, block, ok := d.find(b)
	if !ok || !f.blank(block.OpenBraceRange.End.Byte, block.CloseBraceRange.Start.Byte) {
		return nil
	}
	return d.Remove(b)
}

// Rename gives a block another label.
func (d *Document) Rename(b Block, label string) error {
	f, block, ok := d.find(b)
	if !ok || b.Label == "" || len(b.Within) > 0 {
		return missing(b)
	}
	if renamed := (Block{Type: b.Type, Label: label}); label != b.Label && d.Has(renamed) {
		return sdk.Errorf(sdk.CodeConflict, "there is a block %s already", renamed)
	}
	rng := block.LabelRanges[0]
	return f.splice(rng.Start.Byte, rng.End.Byte, quoted(label))
}

// expand writes a block that stands in one line over several, so that there is
// room in it.
func (f *file) expand(block *hclsyntax.Block) error {
	open, end := block.OpenBraceRange.End, block.CloseBraceRange.Start
	if !f.oneLine(block) {
		return nil
	}
	indentation := f.indentation(block.TypeRange.Start.Byte)
	content := ""
	if inside := bytes.TrimSpace(f.text[open.Byte:end.Byte]); len(inside) > 0 {
		content = indentation + "  " + string(inside) + "\n"
	}
	return f.splice(open.Byte, end.Byte, "\n"+content+indentation)
}

// oneLine reports whether what stands in a block begins behind its brace. The value of
// the one setting that there is room for may still go over several lines.
func (f *file) oneLine(block *hclsyntax.Block) bool {
	content := block.CloseBraceRange.Start.Byte
	for _, attr := range block.Body.Attributes {
		content = min(content, attr.NameRange.Start.Byte)
	}
	for _, inner := range block.Body.Blocks {
		content = min(content, inner.TypeRange.Start.Byte)
	}
	return f.lineEnd(block.OpenBraceRange.End.Byte) > content
}

func quoted(label string) string {
	value, err := Literal(label)
	if err != nil {
		return `""` // no string is refused
	}
	return value.text
}

func missing(b Block) error {
	return sdk.Errorf(sdk.CodeInvalidRequest, "there is no block %s", strings.TrimSpace(b.String()))
}
