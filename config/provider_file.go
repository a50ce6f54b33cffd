package config

import (
	"os"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// LoadProviders reads the provider blocks of a file in the order in which they
// stand there. Whatever else a configuration holds may be there or be missing, and
// is not checked: the file may be a whole configuration or one block.
func LoadProviders(path string, options ...Option) ([]*Provider, Diagnostics) {
	around := surroundings{lookupEnv: os.LookupEnv, contents: map[string][]byte{}}
	for _, option := range options {
		option(&around)
	}
	p, err := newParser(path, around)
	if err != nil {
		return nil, cannotRead(path, err)
	}
	providers := p.parseProviders()
	p.diags.sort()
	return providers, p.diags
}

func (p *parser) parseProviders() []*Provider {
	if !p.open(p.main, FileMain, hcl.Range{}) {
		return nil
	}
	documents, right := p.includeAll()
	if !right {
		return nil
	}
	body := p.merge(documents)
	p.blocks = body.Blocks
	var providers []*Provider
	ignored := func(*hclsyntax.Block) {}
	p.readBlocks(body.Blocks, map[string]blockKind{
		"log": {read: ignored}, "metrics": {read: ignored}, "limits": {read: ignored}, "providers": {read: ignored},
		"tenant": {label: tenantLabel, read: ignored},
		"provider": {label: providerLabel, read: func(b *hclsyntax.Block) {
			if provider := p.readProvider(b); provider != nil {
				providers = append(providers, provider)
			}
		}},
	})
	if len(labelsOf(body, "provider")) == 0 {
		p.fail(hcl.Range{}, "No provider", "The file has no provider block.")
	}
	return providers
}

// cannotRead is what there is to say of a file whose name makes no sense.
func cannotRead(path string, err error) Diagnostics {
	return Diagnostics{{Severity: SeverityError, Summary: unreadable, Detail: capitalize(err.Error()) + ".", File: path}}
}
