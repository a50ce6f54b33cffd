package config

import (
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Origin says where the value of a setting comes from.
type Origin struct {
	Kind OriginKind
	// Name of the environment variable or path of the file, where the block has
	// it as plain text; else "".
	Name string
	// Sensitive values come from outside of the file, or are sealed in it: they
	// are not to be shown, whatever the schema says of the setting.
	Sensitive bool
}

// OriginKind is the kind of an Origin.
type OriginKind string

// The kinds.
const (
	OriginDefault  OriginKind = "default"  // not given; the schema's default, if there is one
	OriginLiteral  OriginKind = "literal"  // written in the file
	OriginSealed   OriginKind = "sealed"   // sealed("...")
	OriginEnv      OriginKind = "env"      // env("...")
	OriginFile     OriginKind = "file"     // file("...")
	OriginComputed OriginKind = "computed" // anything else, such as a condition
)

// Origin returns where a setting of the plugin has its value from. A setting within a
// block has a path, such as auth.token or rules[0].port; a block itself is literal, and
// sensitive if anything in it is.
func (p *Provider) Origin(setting string) Origin {
	a, given := attributeAt(slices.Concat(p.attributes, p.shared), setting)
	if !given || a.value == nil && !a.broken {
		return Origin{Kind: OriginDefault}
	}
	origin := Origin{Kind: OriginLiteral}
	if a.blocks == nil {
		origin = originOf(a.expr)
	}
	origin.Sensitive = a.sensitive
	return origin
}

func originOf(expr hclsyntax.Expression) Origin {
	switch e := expr.(type) {
	case *hclsyntax.TemplateWrapExpr: // "${...}"
		return originOf(e.Wrapped)
	case *hclsyntax.ParenthesesExpr:
		return originOf(e.Expression)
	case *hclsyntax.FunctionCallExpr:
		origin := Origin{Kind: OriginKind(e.Name)}
		if origin.Kind != OriginSealed && len(e.Args) > 0 {
			if value, diags := e.Args[0].Value(nil); !diags.HasErrors() && value.Type() == cty.String && value.IsKnown() && !value.IsNull() {
				origin.Name = value.AsString()
			}
		}
		return origin
	}
	if value, diags := expr.Value(nil); !diags.HasErrors() && value.IsWhollyKnown() {
		return Origin{Kind: OriginLiteral}
	}
	return Origin{Kind: OriginComputed}
}
