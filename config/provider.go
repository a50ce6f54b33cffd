package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Provider is one provider block. What the plugin itself takes from it is read
// by Settings, when the running plugin has said what that is.
type Provider struct {
	// Label is the block's label, [a-z][a-z0-9_]{0,62}.
	Label string
	// Plugin is the name of an executable in Config.PluginDir.
	Plugin string
	// SHA256 is the sum of the executable, 64 lower-case hexadecimal digits;
	// "" if any will do.
	SHA256 string
	// Env names the environment variables that the plugin gets.
	Env []string
	// CostPerSecond of an instance's life, in the unit of Quota.MoneyPerDay.
	CostPerSecond float64

	header     hcl.Range
	attributes []attribute
	// shared are those of the broker's own that a plugin gets too, if it has
	// settings of these names.
	shared []attribute
	file   reporter // for its place in the files; its diags stay empty
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// readProvider returns nil when the broker's own part of the block is wrong, so
// that no other executable is started than the one that was meant.
func (p *parser) readProvider(block *hclsyntax.Block) *Provider {
	schema := pluginSchema()
	provider := &Provider{Label: block.Labels[0], Plugin: block.Labels[0], header: block.DefRange()}
	var own []attribute
	for _, a := range p.evaluate(block.Body) {
		if _, ok := schema.Field(a.name); ok {
			own = append(own, a)
			if a.name == costSetting {
				provider.shared = append(provider.shared, a)
			}
		} else {
			provider.attributes = append(provider.attributes, a)
		}
	}
	before := p.failures
	count := 0
	for _, a := range p.readNested(block.Body, append(own[:len(own):len(own)], provider.attributes...), 0, &count) {
		if f, ok := schema.Field(a.name); ok {
			p.blockMistake(f, a, f.Name)
			continue
		}
		provider.attributes = append(provider.attributes, a)
	}
	s := section{Settings: p.resolve(schema, own, provider.header), attributes: own}
	if plugin, ok := s.Settings["plugin"].(string); ok {
		provider.Plugin = plugin
	}
	pin, _ := s.Settings["sha256"].(string)
	provider.SHA256 = strings.ToLower(pin)
	provider.CostPerSecond, _ = s.Settings[costSetting].(float64)
	if a, ok := s.setting("env"); ok {
		provider.Env = s.Settings["env"].([]string)
		for i, name := range provider.Env {
			if !envName.MatchString(name) {
				p.fail(a.itemRange(i), "Invalid value", "This is not the name of an environment variable. env lists names; the values come from the broker's environment.")
			}
		}
	}
	if p.failures > before || slices.ContainsFunc(own, func(a attribute) bool { return a.broken }) {
		return nil
	}
	provider.file = reporter{mainName: p.mainName, sources: p.sources, blocks: p.blocks, secrets: p.secrets, ordinary: p.ordinary}
	return provider
}

// Settings checks the block against the schema that the plugin described. The
// schema is not trusted: one that is not valid is a diagnostic too. The
// settings are of use only when the diagnostics have no errors.
func (p *Provider) Settings(schema sdk.Schema) (settings sdk.Settings, diags Diagnostics) {
	report := p.reporter(schema)
	defer func() {
		// The last fence before a plugin's schema: it must not end the broker.
		if r := recover(); r != nil {
			report.fail(p.header, "Settings not understood", "The schema of the plugin made the broker stumble, which is a bug. Report it with the name of the plugin.")
			settings, diags = nil, report.diags
		}
	}()
	if err := schema.Validate(); err != nil {
		report.fail(p.header, "Plugin not usable", report.scrub(fmt.Sprintf("The schema of plugin %q breaks the rules: %s. This is a fault of the plugin; ask its author.", p.Plugin, err)))
		return nil, report.diags
	}
	settings = report.resolve(schema, p.given(schema), p.header)
	report.diags.sort()
	if report.diags.HasErrors() {
		return nil, report.diags
	}
	return settings, report.diags
}

// Problems says where in the file that stands which a plugin finds wrong with its
// settings: at the setting, or where none of that name is given at the block.
func (p *Provider) Problems(problems []sdk.FieldError, schema sdk.Schema) Diagnostics {
	report := p.reporter(schema)
	for _, problem := range problems {
		at, known := locate(schema, p.given(schema), problem.Field, p.header)
		field := at.field
		detail := strings.TrimSuffix(report.scrub(problem.Message), ".") + "."
		if !known {
			report.fail(p.header, "Invalid settings", capitalize(detail))
			continue
		}
		detail = report.scrub(problem.Field) + " " + detail
		if field.Description != "" {
			detail += " " + field.Description
		}
		if a := at.attribute; at.given && a.value != nil {
			report.add(SeverityError, at.place, a.blocks == nil && !field.Secret && !a.sensitive, "Invalid value", detail)
		} else {
			report.fail(at.place, "Invalid value", detail)
		}
		report.about(at.path)
	}
	report.diags.sort()
	return report.diags
}

// Equal reports whether two blocks ask for the same, wherever they stand and however
// they are written.
func (p *Provider) Equal(other *Provider) bool {
	return p.Label == other.Label && p.Plugin == other.Plugin && p.SHA256 == other.SHA256 &&
		p.CostPerSecond == other.CostPerSecond && slices.Equal(p.Env, other.Env) &&
		sameAttributes(p.attributes, other.attributes)
}

func sameAttributes(these, those []attribute) bool {
	byName := func(list []attribute) []attribute {
		return slices.SortedFunc(slices.Values(list), func(a, b attribute) int { return cmp.Compare(a.name, b.name) })
	}
	return slices.EqualFunc(byName(these), byName(those), func(a, b attribute) bool {
		return a.name == b.name && a.sensitive == b.sensitive && a.broken == b.broken && reflect.DeepEqual(a.value, b.value) &&
			(a.blocks == nil) == (b.blocks == nil) &&
			slices.EqualFunc(a.blocks, b.blocks, func(x, y nestedBlock) bool { return sameAttributes(x.attributes, y.attributes) })
	})
}

// Readable are the settings of the block that are right, with defaults: those of
// Settings where nothing is wrong. The schema must be valid.
func (p *Provider) Readable(schema sdk.Schema) sdk.Settings {
	readable := sdk.Settings{}
	for _, f := range schema {
		a, given := find(p.given(schema), f.Name)
		if given && a.broken {
			continue
		}
		typed, problems := sdk.Schema{f}.Resolve(map[string]any{f.Name: a.valueFor(f)})
		if value, ok := typed[f.Name]; ok && len(problems) == 0 {
			readable[f.Name] = value
		}
	}
	return readable
}

// Diagnose says where in the file the reason of a plugin's error stands: at the
// setting that an *sdk.Error names as its field, else at the block. The schema
// tells what must not be shown, also when the plugin repeats it.
func (p *Provider) Diagnose(err error, schema sdk.Schema) Diagnostics {
	if err == nil {
		return nil
	}
	report := p.reporter(schema)
	// The diagnostic names the provider already.
	detail := strings.ReplaceAll(report.scrub(err.Error()), fmt.Sprintf("provider %q: ", p.Label), "")
	var broken *sdk.Error
	if !errors.As(err, &broken) {
		report.fail(p.header, "The plugin reports an error", detail)
		return report.diags
	}
	summary := capitalize(broken.Code.Info().Title)
	if at, known := locate(schema, p.given(schema), broken.Field, p.header); known && at.place != p.header {
		trusted := at.given && at.attribute.blocks == nil && !at.field.Secret && !at.attribute.sensitive
		report.add(SeverityError, at.place, trusted, summary, detail)
		report.about(at.path)
		return report.diags
	}
	if a, ok := find(p.attributes, leadingName.FindString(broken.Field)); ok {
		report.fail(a.valueRange(), summary, detail)
		return report.diags
	}
	report.fail(p.header, summary, detail)
	return report.diags
}

// given returns the settings that stand in the block for a plugin with this schema.
func (p *Provider) given(schema sdk.Schema) []attribute {
	attributes := p.attributes
	for _, a := range p.shared {
		if _, ok := schema.Field(a.name); ok {
			attributes = append(attributes[:len(attributes):len(attributes)], a)
		}
	}
	return attributes
}

// leadingName finds the setting in a field path such as headers.accept.
var leadingName = regexp.MustCompile(`^[a-z][a-z0-9_]*`)

// reporter knows, from the schema, which values must not be repeated.
func (p *Provider) reporter(schema sdk.Schema) *reporter {
	report := p.file
	report.secrets = append(report.secrets[:len(report.secrets):len(report.secrets)], secretTexts(schema, p.given(schema))...)
	return &report
}

// secretTexts are those of the settings that the schema calls secret, or that come from
// elsewhere.
func secretTexts(schema sdk.Schema, attributes []attribute) []string {
	var secrets []string
	for _, a := range attributes {
		f, ok := schema.Field(a.name)
		if ok && a.blocks == nil && (f.Secret || a.sensitive) {
			secrets = append(secrets, texts(a.value)...)
		}
		for _, block := range a.blocks {
			secrets = append(secrets, secretTexts(f.Fields, block.attributes)...)
		}
	}
	return secrets
}

// texts returns every text in a value.
func texts(value any) []string {
	switch v := value.(type) {
	case nil, bool:
		return nil
	case []any:
		var all []string
		for _, item := range v {
			all = append(all, texts(item)...)
		}
		return all
	case map[string]any:
		var all []string
		for key, item := range v {
			all = append(append(all, key), texts(item)...)
		}
		return all
	default:
		return []string{fmt.Sprint(v)}
	}
}
