package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Provider is what a plugin says of the settings of its block.
type Provider struct {
	// Label of the block and name of the plugin.
	Label, Plugin string
	Schema        sdk.Schema
}

const introduction = `# Configuration reference

Every block and every setting. What they are for, with examples, is in [admin.md](admin.md#the-configuration-file). This page is what ` + "`sandbox-broker config schema --markdown`" + ` prints; with a configuration file behind it, the settings of its providers too. Without ` + "`--markdown`" + ` it is a JSON Schema.
`

const functions = `## Functions

| function | value |
| --- | --- |
| ` + "`env(\"NAME\")`" + ` | an environment variable of the broker; a mistake if it is not set |
| ` + "`env(\"NAME\", \"other\")`" + ` | the same, with a default |
| ` + "`file(\"path\")`" + ` | the text of a file of at most 64 KiB, without the newline at its end |
| ` + "`sealed(\"sb1:...\")`" + ` | a value that ` + "`sandbox-broker seal`" + ` has encrypted |

No message shows what they give. There are no variables and no loops.
`

// Markdown is the page about these blocks and providers.
func Markdown(blocks []config.BlockSchema, providers []Provider) string {
	var b strings.Builder
	b.WriteString(introduction)
	for _, block := range blocks {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", heading(block), block.Description)
		if block.Label != "" {
			fmt.Fprintf(&b, "The name matches `%s`", block.Label)
			for _, name := range block.Reserved {
				fmt.Fprintf(&b, ", and is not `%s`", name)
			}
			b.WriteString(".\n\n")
		}
		for i, kind := range block.Kinds {
			if i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "### %s %q\n\n%s\n\n%s", block.Type, kind.Name, kind.Description, markdown.Settings(kind.Settings))
		}
		if len(block.Kinds) == 0 {
			b.WriteString(markdown.Settings(block.Settings))
		}
		for _, inner := range block.Blocks {
			if !slices.ContainsFunc(blocks, func(other config.BlockSchema) bool { return other.Type == inner.Type }) {
				writeInner(&b, block.Type, inner)
			}
		}
	}
	for _, p := range providers {
		fmt.Fprintf(&b, "\n## provider %q\n\nThe settings of the plugin `%s`.\n\n%s", p.Label, p.Plugin, markdown.Settings(p.Schema))
	}
	b.WriteString("\n" + functions)
	return b.String()
}

// writeInner describes a block that stands within another one alone.
func writeInner(b *strings.Builder, path string, block config.BlockSchema) {
	path += " " + block.Type
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n", path, block.Description)
	if block.Label != "" {
		fmt.Fprintf(b, "The name matches `%s`.\n\n", block.Label)
	}
	b.WriteString(markdown.Settings(block.Settings))
	for _, inner := range block.Blocks {
		writeInner(b, path, inner)
	}
}

func heading(block config.BlockSchema) string {
	if block.Type == "" {
		return "At the top"
	}
	return block.Type
}
