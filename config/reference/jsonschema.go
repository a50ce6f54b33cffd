package reference

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// schema is a JSON Schema.
type schema map[string]any

// JSONSchema describes a configuration with these blocks and providers, in the
// form that HCL has as JSON: a block is an object under its type, one with a name
// an object under its type and its name. Where there is a function call in the
// file, its result counts.
func JSONSchema(blocks []config.BlockSchema, providers []Provider) ([]byte, error) {
	root := schema{}
	for _, block := range blocks {
		switch {
		case block.Type == "":
			for name, field := range object(block.Settings)["properties"].(schema) {
				root[name] = field
			}
		case block.Label == "":
			root[block.Type] = single(block)
		default:
			root[block.Type] = named(block, providers)
		}
	}
	return json.MarshalIndent(schema{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "sandbox.hcl",
		"type":                 "object",
		"properties":           root,
		"additionalProperties": false,
		"required":             []string{"provider", "tenant"},
	}, "", "  ")
}

// single describes a block without a name.
func single(block config.BlockSchema) schema {
	s := object(block.Settings)
	s["description"] = plain(block.Description)
	within(s, block.Blocks)
	return s
}

// within adds the blocks that a block may hold.
func within(one schema, blocks []config.BlockSchema) {
	for _, inner := range blocks {
		if inner.Label == "" {
			one["properties"].(schema)[inner.Type] = single(inner)
		} else {
			s := named(inner, nil)
			delete(s, "minProperties")
			one["properties"].(schema)[inner.Type] = s
		}
	}
}

// named describes all blocks of a type by their names.
func named(block config.BlockSchema, providers []Provider) schema {
	one := object(block.Settings)
	within(one, block.Blocks)
	s := schema{
		"description":   plain(block.Description),
		"type":          "object",
		"minProperties": 1,
		"propertyNames": schema{"pattern": block.Label},
	}
	if len(block.Reserved) > 0 {
		s["propertyNames"].(schema)["not"] = schema{"enum": block.Reserved}
	}
	if block.Type == "provider" {
		// A plugin that was not asked takes what it takes.
		one["additionalProperties"] = true
		known := schema{}
		for _, p := range providers {
			known[p.Label] = object(append(append(sdk.Schema{}, block.Settings...), p.Schema...))
		}
		if len(known) > 0 {
			s["properties"] = known
		}
	}
	s["additionalProperties"] = one
	if len(block.Kinds) > 0 {
		kinds := schema{}
		for _, kind := range block.Kinds {
			of := object(kind.Settings)
			of["description"] = plain(kind.Description)
			kinds[kind.Name] = of
		}
		s["properties"], s["additionalProperties"] = kinds, false
	}
	return s
}

// object describes a block with these settings.
func object(settings sdk.Schema) schema {
	properties := schema{}
	required := []string{}
	for _, f := range settings {
		properties[f.Name] = field(f)
		if f.Required || f.CheckCount(0) != nil {
			required = append(required, f.Name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// field describes one setting.
func field(f sdk.Field) schema {
	s := schema{}
	switch f.Type {
	case sdk.TypeInteger, sdk.TypeNumber, sdk.TypeBoolean:
		s["type"] = string(f.Type)
		bound(s, f, "minimum", "maximum")
	case sdk.TypeDuration:
		seconds := schema{"type": "number", "description": "seconds"}
		bound(seconds, f, "minimum", "maximum")
		s["anyOf"] = []schema{{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`}, seconds}
	case sdk.TypeList:
		s["type"], s["items"] = "array", schema{"type": "string"}
		if f.Items != nil {
			s["items"] = field(*f.Items)
		}
		bound(s, f, "minItems", "maxItems")
	case sdk.TypeMap:
		s["type"], s["additionalProperties"] = "object", schema{"type": "string"}
		bound(s, f, "minProperties", "maxProperties")
	case sdk.TypeBlock:
		s = object(f.Fields)
		if f.Repeated {
			s = schema{"type": "array", "items": s}
			bound(s, f, "minItems", "maxItems")
			if f.Min == nil && f.Required {
				s["minItems"] = 1
			}
		}
	default:
		s["type"] = "string"
		bound(s, f, "minLength", "maxLength")
		if f.Pattern != "" {
			s["pattern"] = "^(?:" + f.Pattern + ")$"
		}
		if len(f.Options) > 0 {
			s["enum"] = f.Options
		}
	}
	if f.Label != "" {
		s["title"] = f.Label
	}
	if f.Description != "" {
		s["description"] = plain(f.Description)
	}
	if f.Placeholder != "" {
		s["examples"] = []string{f.Placeholder}
	}
	if f.FileOnly {
		s["x-file-only"] = true
	}
	if f.Secret {
		s["writeOnly"] = true
	} else if f.Default != nil {
		s["default"] = written(f.Default)
	}
	return s
}

func bound(s schema, f sdk.Field, least, most string) {
	if f.Min != nil {
		s[least] = *f.Min
	}
	if f.Max != nil {
		s[most] = *f.Max
	}
}

// written is a default as it would stand in the file.
func written(value any) any {
	if d, ok := value.(time.Duration); ok {
		return d.String()
	}
	return value
}

// plain takes the marks of code out of a text.
func plain(text string) string { return strings.ReplaceAll(text, "`", "") }
