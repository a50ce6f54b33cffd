package admin

import (
	"context"
	"encoding/json"
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
	// current are the settings of the files, nil if they have mistakes.
	current sdk.Settings
	// inMemory says that the text will never be written: anything may be replaced,
	// and secrets stand in it as they are.
	inMemory bool
	problems FieldErrors
}

// settings puts settings into the block of a provider, which is added if there is
// none. What is not named stays as it is, and null removes a setting. Values that
// are what the files say already, or how Configuration shows that, change nothing.
func (c *Configurator) settings(ctx context.Context, d *edit.Document, label string, given map[string]any, inMemory bool) error {
	m := merge{document: d, block: edit.Provider(label), inMemory: inMemory}
	if !d.Has(m.block) {
		if err := c.add(d, m.block); err != nil {
			return err
		}
	}
	cfg, diags := d.Check()
	m.cfg, m.provider = cfg, cfg.Provider(label)
	if m.provider == nil || cfg.PluginDir == "" {
		return diags
	}
	if running, ok := c.daemon.InForce().provider(label); ok {
		m.schema = running.Schema
	} else {
		description, err := c.daemon.Describe(ctx, cfg, m.provider)
		if err != nil {
			return m.provider.Diagnose(err, nil)
		}
		m.schema = description.Schema
	}
	m.current, _ = m.provider.Settings(m.schema)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := m.set(name, given[name]); err != nil {
			return err
		}
	}
	if len(m.problems) > 0 {
		return m.problems
	}
	return nil
}

// add puts the block of another provider into the files. Where there was one alone,
// it stays the active one until another is chosen.
func (c *Configurator) add(d *edit.Document, block edit.Block) error {
	if err := d.Add(block); err != nil {
		return err
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

func (m *merge) fail(name, problem string) {
	m.problems = append(m.problems, sdk.FieldError{Field: name, Message: problem})
}

// set puts one setting into the block.
func (m *merge) set(name string, value any) error {
	field, ok := m.schema.Field(name)
	switch {
	case name == "plugin" || name == "sha256" || name == "env":
		m.fail(name, "says which program runs and what it gets of the broker's environment; it is changed in the file")
		return nil
	case !ok:
		m.fail(name, "is not a setting of this provider")
		return nil
	case value == nil:
		return m.document.Unset(m.block, name)
	}
	origin := m.provider.Origin(name)
	if m.current != nil && isMasked(field, origin) {
		value = unmask(value, m.current[name])
	}
	if text, ok := value.(string); ok && field.Secret && looksMasked(text) {
		m.fail(name, "is how another secret than the present one is shown; give the secret itself, or leave it out")
		return nil
	}
	field.Required = false
	typed, problems := sdk.Schema{field}.Resolve(map[string]any{name: value})
	if len(problems) > 0 {
		m.problems = append(m.problems, problems...)
		return nil
	}
	if m.current != nil && reflect.DeepEqual(typed[name], m.current[name]) {
		return nil
	}
	plain, err := edit.Literal(plainly(value, typed[name]))
	switch {
	case err != nil:
		return err
	case m.inMemory:
		return m.document.Overwrite(m.block, name, plain)
	case field.Secret || origin.Kind == config.OriginSealed:
		return m.setSecret(name, typed[name], plain, origin)
	default:
		return m.document.Set(m.block, name, plain)
	}
}

// setSecret writes a secret sealed. Where nothing can be sealed it may only stand in
// the file as it is if one does already.
func (m *merge) setSecret(name string, value any, plain edit.Value, origin config.Origin) error {
	ring := m.cfg.Keyring()
	text, isText := value.(string)
	switch {
	case len(ring.IDs()) > 0 && isText:
		sealed, err := edit.Secret(ring, text)
		if err != nil {
			m.fail(name, err.Error())
			return nil
		}
		return m.document.Set(m.block, name, sealed)
	case origin.Kind == config.OriginLiteral:
		return m.document.Set(m.block, name, plain)
	case !isText:
		m.fail(name, "is a secret of several parts, which are sealed one by one; change it in the file")
	default:
		m.fail(name, "is a secret, and there is no key to seal it with: make one with `sandbox-broker keygen`, and name its file by key_file in the configuration")
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
