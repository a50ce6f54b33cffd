package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Configuration is the one in force, as it may be shown.
type Configuration struct {
	// Generation has the settings as they are; only Settings may be shown.
	Generation Generation
	// Settings by the labels of the providers.
	Settings map[string][]Setting
	// Files are the main file and those that it includes.
	Files []string
	// ReadOnly says why the files cannot be changed; "" if they can.
	ReadOnly string
	// Differs says that the files are not those that are in force: they were
	// refused, or changed a moment ago.
	Differs bool
	// Seals says whether there is a key to seal secrets with.
	Seals bool
	// LastRefused is the last attempt that was refused, nil for none.
	LastRefused *Reload
}

// Setting is one that a provider takes.
type Setting struct {
	Name string
	// Value is nil for one that is not given and has no default, and masked where
	// it must not be shown. A duration is text.
	Value  any
	Origin config.Origin
	// Masked says whether the value is.
	Masked bool
}

// Configuration shows what is in force.
func (c *Configurator) Configuration() Configuration {
	g := c.daemon.InForce()
	shown := Configuration{Generation: g, Settings: map[string][]Setting{}, Seals: len(g.Config.Keyring().IDs()) > 0}
	for _, p := range g.Providers {
		shown.Settings[p.Label] = show(p, g.Config.Provider(p.Label))
	}
	for _, f := range g.Config.Files() {
		if f.Kind == config.FileMain || f.Kind == config.FileIncluded {
			shown.Files = append(shown.Files, f.Name)
		}
	}
	d, err := c.open()
	if err == nil {
		shown.Differs = d.Revision() != g.Config.Revision
		err = d.CheckWritable()
	} else if c.daemon.File() != "" {
		shown.Differs = true
	}
	shown.ReadOnly = reasonOf(err)
	for _, r := range c.daemon.Reloads() {
		if r.Result() == "refused" {
			shown.LastRefused = &r
			break
		}
	}
	return shown
}

func reasonOf(err error) string {
	switch e := err.(type) { //nolint:errorlint // whatever is wrapped in it belongs to its text
	case nil:
		return ""
	case *sdk.Error:
		return e.Message
	case config.Diagnostics:
		return "the files have mistakes: correct them there"
	default:
		return "the files cannot be read"
	}
}

// show lists the settings in the order of the schema.
func show(p Configured, block *config.Provider) []Setting {
	var list []Setting
	for _, field := range p.Schema {
		list = append(list, showOne(field, p.Settings[field.Name], block, field.Name))
	}
	return list
}

// showOne is the setting at a path, as it may be shown.
func showOne(field sdk.Field, value any, block *config.Provider, path string) Setting {
	s := Setting{Name: field.Name, Value: value, Origin: block.Origin(path)}
	switch v := value.(type) {
	case time.Duration:
		s.Value = v.String()
	case sdk.Settings:
		s.Value, s.Masked = showBlock(field.Fields, v, block, path)
		return s
	case []sdk.Settings:
		all := make([]map[string]any, len(v))
		for i, settings := range v {
			shown, masked := showBlock(field.Fields, settings, block, fmt.Sprintf("%s[%d]", path, i))
			all[i], s.Masked = shown, s.Masked || masked
		}
		s.Value = all
		return s
	}
	if s.Masked = isMasked(field, s.Origin); s.Masked {
		s.Value = maskAll(s.Value)
	}
	return s
}

// showBlock shows the settings of a block, and says whether any of them is masked.
func showBlock(schema sdk.Schema, settings sdk.Settings, block *config.Provider, path string) (shown map[string]any, masked bool) {
	shown = map[string]any{}
	for _, field := range schema {
		if value, ok := settings[field.Name]; ok {
			one := showOne(field, value, block, path+"."+field.Name)
			shown[field.Name], masked = one.Value, masked || one.Masked
		}
	}
	return shown, masked
}

// isMasked reports whether a setting's value must not be shown. The default of a
// setting that is no secret may.
func isMasked(field sdk.Field, origin config.Origin) bool { return field.Secret || origin.Sensitive }

const (
	masked = "****"
	// shortestShown is the length from which on a secret shows its end.
	shortestShown = 8
	shownEnd      = 4
)

// mask leaves the last four characters of a secret that is long enough for it.
func mask(secret string) string {
	if secret == "" {
		return ""
	}
	n := utf8.RuneCountInString(secret)
	if n < shortestShown {
		return masked
	}
	return masked + string([]rune(secret)[n-shownEnd:])
}

// looksMasked reports whether a text is what mask makes, of any secret.
func looksMasked(text string) bool {
	rest, ok := strings.CutPrefix(text, masked)
	return ok && (rest == "" || utf8.RuneCountInString(rest) == shownEnd)
}

// hasMask reports whether any text in a value is what mask makes.
func hasMask(value any) bool {
	switch v := value.(type) {
	case string:
		return looksMasked(v)
	case []any:
		return slices.ContainsFunc(v, hasMask)
	case []string:
		return slices.ContainsFunc(v, looksMasked)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), hasMask)
	case map[string]string:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), looksMasked)
	default:
		return false
	}
}

// maskAll masks the texts in a value; numbers and the like are replaced.
func maskAll(value any) any {
	switch v := value.(type) {
	case nil:
		return nil
	case string:
		return mask(v)
	case []string:
		list := make([]string, len(v))
		for i, item := range v {
			list[i] = mask(item)
		}
		return list
	case map[string]string:
		m := map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			m[key] = mask(v[key])
		}
		return m
	default:
		return masked
	}
}
