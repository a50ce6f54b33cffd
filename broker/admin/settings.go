package admin

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// merge is the settings of a provider on their way into its block.
type merge struct {
	document *edit.Document
	block    edit.Block
	provider *config.Provider // as the files have it
	cfg      *config.Config   // of the files
	schema   sdk.Schema
	// current are the settings of the files, without those that have mistakes.
	current sdk.Settings
	// inMemory says that the text will never be written: anything may be replaced,
	// and secrets stand in it as they are.
	inMemory bool
	problems FieldErrors
}

// settings puts settings into the block of a provider, which is added if there is
// none. What is not named stays as it is, and null removes a setting. Values that
// are what the files say already, or how Configuration shows that, change nothing.
func (c *Configurator) settings(ctx context.Context, d *edit.Document, req ProviderSettings, inMemory bool) error {
	label, given := req.Provider, req.Settings
	m := merge{document: d, block: edit.Provider(label), inMemory: inMemory}
	if !d.Has(m.block) {
		if err := c.add(d, m.block, req.Plugin); err != nil {
			return err
		}
	}
	cfg, diags := d.Check()
	m.cfg, m.provider = cfg, cfg.Provider(label)
	if m.provider == nil || cfg.PluginDir == "" {
		return diags
	}
	if req.Plugin != "" && req.Plugin != m.provider.Plugin {
		return sdk.Errorf(sdk.CodeInvalidConfig, "plugin: the provider %q runs %q; which program a provider runs is changed in the file", label, m.provider.Plugin)
	}
	if running, ok := c.running(cfg, m.provider); ok {
		m.schema = running.Schema
	} else {
		description, err := c.daemon.Describe(ctx, cfg, m.provider)
		if err != nil {
			return m.provider.Diagnose(err, nil)
		}
		m.schema = description.Schema
	}
	m.current = m.provider.Readable(m.schema)
	if err := m.setAll(place{block: m.block, schema: m.schema, current: m.current, keeps: true}, given); err != nil {
		return err
	}
	if len(m.problems) > 0 {
		return m.problems
	}
	return nil
}

// running is the provider in force if the files still have the same program for it:
// what another one marks as the file's own, only that one says.
func (c *Configurator) running(cfg *config.Config, block *config.Provider) (Configured, bool) {
	g := c.daemon.InForce()
	now := g.Config.Provider(block.Label)
	if now == nil || now.Plugin != block.Plugin || g.Config.PluginDir != cfg.PluginDir {
		return Configured{}, false
	}
	return g.provider(block.Label)
}

// add puts the block of another provider into the files. Where there was one alone,
// it stays the active one until another is chosen. The plugin is the name of a file in
// the plugin directory and of no other: the configuration takes nothing else, and who
// starts it looks there alone.
func (c *Configurator) add(d *edit.Document, block edit.Block, plugin string) error {
	if err := d.Add(block); err != nil {
		return err
	}
	if plugin != "" && plugin != block.Label {
		name, err := edit.Literal(plugin)
		if err != nil {
			return err
		}
		if err := d.Set(block, "plugin", name); err != nil {
			return err
		}
	}
	if d.Has(edit.Providers()) {
		return nil
	}
	active, err := edit.Literal(c.daemon.InForce().Config.ActiveProvider)
	if err != nil {
		return err
	}
	return d.Set(edit.Providers(), "active", active)
}

// fileOnly is the answer to who wants to change what only the files may.
const fileOnly = "names a program, a path or an address that the provider trusts; it is changed in the file, by whoever may write that"

func (m *merge) fail(name, problem string) {
	m.problems = append(m.problems, sdk.FieldError{Field: name, Message: problem})
}

// place is where settings are put: the block of the provider, or one within it.
type place struct {
	block  edit.Block
	schema sdk.Schema
	// current are the settings that stand there now.
	current sdk.Settings
	// path stands before the names of settings in mistakes, was before those that the
	// files have. A block that is about to be made has no was.
	path, was string
	fresh     bool
	// fileOnly says that the block is the file's, with all in it.
	fileOnly bool
	// keeps says that a masked value stands for the one that is there.
	keeps bool
	// whole says that settings go that are not named.
	whole bool
}

func (m *merge) origin(at place, name string) config.Origin {
	if at.fresh {
		return config.Origin{Kind: config.OriginDefault}
	}
	return m.provider.Origin(at.was + name)
}

// setAll puts settings in their place, in the order of their names.
func (m *merge) setAll(at place, given map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := m.set(at, name, given[name]); err != nil {
			return err
		}
	}
	return nil
}

// set puts one setting in its place.
func (m *merge) set(at place, name string, value any) error {
	field, ok := at.schema.Field(name)
	path := at.path + name
	switch {
	case at.path == "" && (name == "plugin" || name == "sha256" || name == "env"):
		m.fail(path, "says which program runs and what it gets of the broker's environment; it is changed in the file")
		return nil
	case !ok:
		m.fail(path, "is not a setting of this provider")
		return nil
	}
	field.FileOnly = field.FileOnly || at.fileOnly
	if field.Type == sdk.TypeBlock {
		return m.setBlocks(at, field, value)
	}
	origin := m.origin(at, name)
	switch {
	case value == nil && field.FileOnly && origin.Kind != config.OriginDefault:
		m.fail(path, fileOnly)
		return nil
	case value == nil && at.fresh:
		return nil
	case value == nil:
		return m.document.Unset(at.block, name)
	case at.keeps && isMasked(field, origin):
		value = unmask(value, at.current[name])
	}
	if message := stillMasked(at, field, origin, value); message != "" {
		m.fail(path, message)
		return nil
	}
	field.Required = false
	typed, problems := sdk.Schema{field}.Resolve(map[string]any{name: value})
	if len(problems) > 0 {
		for _, problem := range problems {
			m.fail(at.path+problem.Field, problem.Message)
		}
		return nil
	}
	if reflect.DeepEqual(typed[name], at.current[name]) {
		return nil
	}
	if field.FileOnly {
		m.fail(path, fileOnly)
		return nil
	}
	plain, err := edit.Literal(plainly(value, typed[name]))
	switch {
	case err != nil:
		return err
	case m.inMemory:
		return m.document.Overwrite(at.block, name, plain)
	case field.Secret || origin.Kind == config.OriginSealed:
		return m.setSecret(at, name, typed[name], plain, origin)
	default:
		return inPlace(m.document.Set(at.block, name, plain), path)
	}
}

// stillMasked says what is wrong with a value that is masked and stands for nothing that
// is there; "" if nothing is.
func stillMasked(at place, field sdk.Field, origin config.Origin, value any) string {
	switch {
	case !hasMask(value) || reflect.DeepEqual(value, at.current[field.Name]):
		return ""
	case !at.keeps:
		return "is masked, and whose value is meant cannot be told, for blocks have come, gone or changed places; give the value itself"
	case isMasked(field, origin):
		return "is how another secret than the present one is shown; give the secret itself, or leave it out"
	default:
		return ""
	}
}

// inPlace names the path of a setting in what is wrong with it.
func inPlace(err error, path string) error {
	wrong, ok := errors.AsType[*sdk.Error](err)
	if !ok || wrong.Field == "" {
		return err
	}
	placed := *wrong
	placed.Field = path
	return &placed
}

// setSecret writes a secret sealed. Where nothing can be sealed it may only stand in
// the file as it is if one does already.
func (m *merge) setSecret(at place, name string, value any, plain edit.Value, origin config.Origin) error {
	path, ring := at.path+name, m.cfg.Keyring()
	text, isText := value.(string)
	switch {
	case len(ring.IDs()) > 0 && isText:
		sealed, err := edit.Secret(ring, text)
		if err != nil {
			m.fail(path, err.Error())
			return nil
		}
		return inPlace(m.document.Set(at.block, name, sealed), path)
	case origin.Kind == config.OriginLiteral:
		return inPlace(m.document.Set(at.block, name, plain), path)
	case reflect.ValueOf(value).CanConvert(reflect.TypeFor[float64]()):
		m.fail(path, "is a secret number, which cannot be sealed; change it in the file")
	case !isText:
		m.fail(path, "is a secret of several parts, which are sealed one by one; change it in the file")
	default:
		m.fail(path, "is a secret, and there is no key to seal it with: make one with `sandbox-broker keygen`, and name its file by key_file in the configuration")
	}
	return nil
}

// unmask puts what is there now in the place of how it is shown.
func unmask(value, current any) any {
	if reflect.DeepEqual(value, maskAll(current)) {
		return current
	}
	switch now := current.(type) {
	case []string:
		if list, ok := value.([]any); ok && len(list) == len(now) {
			all := slices.Clone(list)
			for i := range all {
				all[i] = unmask(all[i], now[i])
			}
			return all
		}
	case map[string]string:
		if m, ok := value.(map[string]any); ok {
			all := maps.Clone(m)
			for key := range all {
				if present, there := now[key]; there {
					all[key] = unmask(all[key], present)
				}
			}
			return all
		}
	}
	return value
}

// plainly is a value as it was given, so that 30 stays 30 where a duration is meant,
// in a type that edit.Literal takes.
func plainly(given, typed any) any {
	switch v := given.(type) {
	case string, bool:
		return v
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return typed
}
