package edit

import (
	"bytes"
	"fmt"
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
	// Inner is the type of a block within it, such as quota; "" for the block
	// itself.
	Inner string
}

// Provider names the block of a provider.
func Provider(label string) Block { return Block{Type: "provider", Label: label} }

// Tenant names the block of a tenant.
func Tenant(name string) Block { return Block{Type: "tenant", Label: name} }

// Quota names the block with the quotas of a tenant.
func Quota(tenant string) Block { return Block{Type: "tenant", Label: tenant, Inner: "quota"} }

// Providers names the block that says which provider serves.
func Providers() Block { return Block{Type: "providers"} }

// String is the block as it stands in the file.
func (b Block) String() string {
	name := b.Type
	if b.Label != "" {
		name = fmt.Sprintf("%s %q", b.Type, b.Label)
	}
	if b.Inner != "" {
		name += " " + b.Inner
	}
	return name
}

func (b Block) outer() Block { return Block{Type: b.Type, Label: b.Label} }

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
			if b.Inner == "" {
				return f, block, true
			}
			for _, inner := range block.Body.Blocks {
				if inner.Type == b.Inner && len(inner.Labels) == 0 {
					return f, inner, true
				}
			}
			return f, nil, false
		}
	}
	return nil, nil, false
}

// Has reports whether there is such a block.
func (d *Document) Has(b Block) bool {
	_, _, ok := d.find(b)
	return ok
}

// Add puts an empty block behind the last of its type, or else at the end of the
// main file. A block within another one goes to its end.
func (d *Document) Add(b Block) error {
	if d.Has(b) {
		return sdk.Errorf(sdk.CodeConflict, "there is a block %s already", b)
	}
	header := b.Type
	if b.Label != "" {
		header += " " + quoted(b.Label)
	}
	if b.Inner != "" {
		return d.addInner(b)
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
	f, outer, ok := d.find(b.outer())
	if !ok {
		return missing(b.outer())
	}
	if err := f.expand(outer); err != nil {
		return err
	}
	f, outer, _ = d.find(b.outer())
	end := f.lineStart(outer.CloseBraceRange.Start.Byte)
	inside := f.indentation(outer.TypeRange.Start.Byte) + "  "
	before := ""
	if !f.blank(outer.OpenBraceRange.End.Byte, end) {
		before = "\n"
	}
	return f.splice(end, end, before+inside+b.Inner+" {\n"+inside+"}\n")
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
	}
	rest := ""
	if f.blank(0, start) && f.blank(end, len(f.text)) {
		// A file without any content counts as one that is about to be written.
		rest = "# The last block of this file was removed.\n"
	}
	return f.splice(start, end, rest)
}

// Rename gives a block another label.
func (d *Document) Rename(b Block, label string) error {
	f, block, ok := d.find(b)
	if !ok || b.Label == "" || b.Inner != "" {
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
	if open.Line != end.Line {
		return nil
	}
	indentation := f.indentation(block.TypeRange.Start.Byte)
	content := ""
	if inside := bytes.TrimSpace(f.text[open.Byte:end.Byte]); len(inside) > 0 {
		content = indentation + "  " + string(inside) + "\n"
	}
	return f.splice(open.Byte, end.Byte, "\n"+content+indentation)
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
