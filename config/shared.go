package config

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const sharedFileSetting = "shared_file"

// sharedBlocks may stand in the file that brokers share. All else is about one machine:
// addresses, directories, certificates, and where it logs.
var sharedBlocks = []string{"admin", "connections", "front_door", "limits", "previews", "provider", "providers", "quota", "template", "tenant"}

func quotedBlocks(kinds []string) string { return "`" + strings.Join(kinds, "`, `") + "`" }

// Shared is the file that all brokers on the database have in common, with its text; "" where
// there is none.
func (c *Config) Shared() (path string, text []byte) {
	if c.Peers == nil || c.Peers.SharedFile == "" {
		return "", nil
	}
	return c.Peers.SharedFile, bytes.Clone(c.shared)
}

// readSharedFile is the path of the file that brokers share; "" for none.
func (p *parser) readSharedFile(s section) string {
	a, given := s.setting(sharedFileSetting)
	if !given {
		return ""
	}
	name, _ := s.Settings[sharedFileSetting].(string)
	path := absolute(p.documents[a.nameRange.Filename].dir(), name)
	if d := p.sharedDocument(path); d == nil || d == p.main {
		p.fail(a.expr.Range(), "File not included", "shared_file is one of the files that include brings in: all brokers have the same in it, and what is this one's alone stands in the others.")
	}
	return path
}

func (p *parser) sharedDocument(path string) *document {
	for _, d := range p.documents {
		if d.path == path {
			return d
		}
	}
	return nil
}

// readShared checks what the shared file has, and keeps its text.
func (p *parser) readShared(cfg *Config, peers section) {
	if cfg.Peers == nil || cfg.Peers.SharedFile == "" {
		return
	}
	if a, given := peers.setting(sharedFileSetting); given && cfg.Database == "" {
		p.fail(a.expr.Range(), "Of no use", "Brokers share a file through their database, and the state of this one is in a directory.")
	}
	d := p.sharedDocument(cfg.Peers.SharedFile)
	if d == nil || d.body == nil {
		return // was reported
	}
	cfg.shared = d.text
	for _, name := range slices.Sorted(maps.Keys(d.body.Attributes)) {
		p.fail(d.body.Attributes[name].NameRange, "Not to be shared", fmt.Sprintf("%s is each broker's own. Write it into a file that is not shared_file.", name))
	}
	kinds := map[string]BlockSchema{}
	for _, kind := range Blocks() {
		kinds[kind.Type] = kind
	}
	for _, block := range d.body.Blocks {
		if kind, known := kinds[block.Type]; known && !slices.Contains(sharedBlocks, block.Type) {
			p.fail(block.TypeRange, "Not to be shared", fmt.Sprintf("A block %s is each broker's own. Write it into a file that is not shared_file, which may hold %s.", kind.Type, quotedList(sharedBlocks)))
			continue
		}
		if listen, given := block.Body.Attributes["listen"]; given && block.Type == "front_door" {
			p.fail(listen.NameRange, "Not to be shared", "An address is each broker's own. Write the front door into a file that is not shared_file, or without listen.")
		}
		p.refuseOpenSecrets(block, kinds[block.Type])
	}
}

// refuseOpenSecrets refuses secrets that anybody could read who reads the database.
func (p *parser) refuseOpenSecrets(block *hclsyntax.Block, kind BlockSchema) {
	for _, field := range kind.Settings {
		if attr, given := block.Body.Attributes[field.Name]; given && field.Secret && field.Type == sdk.TypeString && originOf(attr.Expr).Kind == OriginLiteral {
			p.add(SeverityError, attr.Expr.Range(), false, "Secret in the open", openSecret(field.Name))
		}
	}
	for _, inner := range block.Body.Blocks {
		for _, schema := range kind.Blocks {
			if schema.Type == inner.Type {
				p.refuseOpenSecrets(inner, schema)
			}
		}
	}
}

func openSecret(name string) string {
	return fmt.Sprintf("%s is a secret, and the database would have it as it is written here. Write %s = env(\"NAME\"), file(\"PATH\") or sealed(\"...\").", name, name)
}

// OpenSecrets are the mistakes of secrets of a plugin that stand as they are in the file that
// brokers share. Which settings are secret, the plugin says.
func (c *Config) OpenSecrets(block *Provider, schema sdk.Schema) Diagnostics {
	path, _ := c.Shared()
	for _, f := range c.files {
		if path != "" && f.Path == path && f.Name == block.header.Filename {
			report := block.file
			report.openSecrets(block.attributes, schema)
			return report.diags
		}
	}
	return nil
}

func (r *reporter) openSecrets(attributes []attribute, schema sdk.Schema) {
	for _, field := range schema {
		a, given := find(attributes, field.Name)
		if !given || a.value == nil {
			continue
		}
		for _, inner := range a.blocks {
			r.openSecrets(inner.attributes, field.Fields)
		}
		if field.Secret && a.blocks == nil && !a.sensitive {
			r.add(SeverityError, a.expr.Range(), false, "Secret in the open", openSecret(field.Name))
		}
	}
}
