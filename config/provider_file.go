package config

import (
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// LoadProviders reads the provider blocks of a file, and of those that it
// includes, in the order in which they stand there. Whatever else a configuration
// holds may be there or be missing, and is not checked: the file may be a whole
// configuration or one block.
func LoadProviders(path string, options ...Option) ([]*Provider, Diagnostics) {
	p, err := newParser(path, options)
	if err != nil {
		return nil, unreadable(path, err)
	}
	providers := p.parseProviders()
	p.diags.sort()
	return providers, p.diags
}

func (p *parser) parseProviders() []*Provider {
	body := p.readAll()
	if body == nil {
		return nil
	}
	p.keys.attr = body.Attributes[keyFileSetting]
	var providers []*Provider
	kinds := map[string]blockKind{}
	for _, block := range Blocks() {
		kind := blockKind{read: func(*hclsyntax.Block) {}}
		if block.Label != "" {
			kind.label = regexp.MustCompile(block.Label)
		}
		kinds[block.Type] = kind
	}
	kinds["provider"] = blockKind{label: providerLabel, read: func(b *hclsyntax.Block) {
		if provider := p.readProvider(b); provider != nil {
			providers = append(providers, provider)
		}
	}}
	p.readBlocks(body.Blocks, kinds)
	if len(labelsOf(body, "provider")) == 0 {
		p.fail(hcl.Range{}, "No provider", "The file has no provider block.")
	}
	return providers
}

// unreadable is what there is to say of a file that cannot be read at all.
func unreadable(path string, err error) Diagnostics {
	return Diagnostics{{
		Severity: SeverityError,
		Summary:  cannotRead,
		Detail:   capitalize(err.Error()) + ".",
		File:     path,
	}}
}

const cannotRead = "The configuration cannot be read"
