package edit

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// Resealed is what Reseal did.
type Resealed struct {
	// Anew counts the values that were sealed with the first key, Already those
	// that were before.
	Anew, Already int
	// Computed names the places, file:line, of calls of sealed() whose text the
	// file computes. They are to be sealed where that text comes from.
	Computed []string
}

// Reseal seals every sealed value of the configuration with the first key of the
// ring, in memory. Nothing changes when one of them cannot be opened.
func (d *Document) Reseal(ring *seal.Keyring) (Resealed, error) {
	var result Resealed
	for _, f := range d.files {
		edits, err := f.reseal(ring, &result)
		if err != nil {
			return Resealed{}, err
		}
		// From the end, so that the places before stay what they are.
		for _, e := range slices.Backward(edits) {
			if err := f.splice(e.start, e.end, e.text); err != nil {
				return Resealed{}, err
			}
		}
	}
	return result, nil
}

// SaveResealed writes what Reseal changed. The rest of the configuration may be
// wrong here: variables of the environment are missing on the machine of a person.
func (d *Document) SaveResealed() error { return d.write() }

type splice struct {
	start, end int
	text       string
}

func (f *file) reseal(ring *seal.Keyring, result *Resealed) ([]splice, error) {
	var edits []splice
	for _, call := range f.sealedCalls() {
		text, ok := plainArgument(call)
		switch {
		case !ok:
			result.Computed = append(result.Computed, f.place(call.NameRange))
			continue
		case ring.OpensFirst(text):
			if _, err := ring.Open(text); err != nil {
				return nil, fmt.Errorf("%s: %w", f.place(call.NameRange), err)
			}
			result.Already++
			continue
		}
		secret, err := ring.Open(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.place(call.NameRange), err)
		}
		anew, err := ring.Seal(secret)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.place(call.NameRange), err)
		}
		rng := call.Args[0].Range()
		edits = append(edits, splice{rng.Start.Byte, rng.End.Byte, quoted(anew)})
		result.Anew++
	}
	return edits, nil
}

// sealedCalls are the calls of sealed() in the order of the file.
func (f *file) sealedCalls() []*hclsyntax.FunctionCallExpr {
	var calls []*hclsyntax.FunctionCallExpr
	_ = hclsyntax.VisitAll(f.body, func(node hclsyntax.Node) hcl.Diagnostics {
		if call, ok := node.(*hclsyntax.FunctionCallExpr); ok && call.Name == "sealed" && len(call.Args) == 1 {
			calls = append(calls, call)
		}
		return nil
	})
	slices.SortFunc(calls, func(a, b *hclsyntax.FunctionCallExpr) int { return a.NameRange.Start.Byte - b.NameRange.Start.Byte })
	return calls
}

// plainArgument is the argument of a call if it is a text and nothing else.
func plainArgument(call *hclsyntax.FunctionCallExpr) (string, bool) {
	template, ok := call.Args[0].(*hclsyntax.TemplateExpr)
	if !ok || !template.IsStringLiteral() {
		return "", false
	}
	value, diags := template.Value(nil)
	if diags.HasErrors() || value.Type() != cty.String || value.IsNull() {
		return "", false
	}
	return value.AsString(), true
}
