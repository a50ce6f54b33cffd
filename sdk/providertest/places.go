package providertest

import (
	"fmt"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// place is a field where some settings can have a value for it: at the top, or in a block
// that they have.
type place struct {
	// path of the field as errors name it.
	path  string
	field sdk.Field
	// put returns the settings with another value in this place; nil takes it out.
	put func(value any) sdk.Settings
	// sample is a block that is right, of a field that is one; nil if none is known.
	sample sdk.Settings
}

// blockCount is a bad value: so many blocks, each of which is right.
type blockCount int

// fill makes the value that is meant. There is none for blocks that nobody knows how to
// fill in.
func (p place) fill(value any) (any, bool) {
	n, ok := value.(blockCount)
	if !ok {
		return value, true
	}
	sample := p.sample
	if sample == nil {
		var problems []sdk.FieldError
		if sample, problems = p.field.Fields.Resolve(nil); len(problems) > 0 && n > 0 {
			return nil, false
		}
	}
	blocks := make([]sdk.Settings, n)
	for i := range blocks {
		blocks[i] = sample
	}
	return blocks, true
}

// placesIn finds the fields of a schema, those of blocks too that the settings have; of
// repeated blocks the first.
func placesIn(schema sdk.Schema, settings sdk.Settings) []place {
	var all []place
	for _, f := range schema {
		at := place{path: f.Name, field: f, put: func(value any) sdk.Settings { return with(settings, f.Name, value) }}
		if blocks := settings.Blocks(f.Name); len(blocks) > 0 {
			at.sample = blocks[0]
		}
		all = append(all, at)
		if block := settings.Block(f.Name); block != nil {
			all = append(all, inner(at, f.Name, placesIn(f.Fields, block), func(changed sdk.Settings) any { return changed })...)
		}
		if blocks := settings.Blocks(f.Name); len(blocks) > 0 {
			all = append(all, inner(at, fmt.Sprintf("%s[0]", f.Name), placesIn(f.Fields, blocks[0]), func(changed sdk.Settings) any {
				others := slices.Clone(blocks)
				others[0] = changed
				return others
			})...)
		}
	}
	return all
}

// inner are the places of a block, as places of what it stands in.
func inner(block place, path string, places []place, wrap func(sdk.Settings) any) []place {
	for i, p := range places {
		places[i].path = path + "." + p.path
		places[i].put = func(value any) sdk.Settings { return block.put(wrap(p.put(value))) }
	}
	return places
}
