package main

import (
	"os"
	"time"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// descriptionJSON is what `plugin describe --json` prints. Fields may be added.
type descriptionJSON struct {
	Name         string           `json:"name"`
	Version      string           `json:"version"`
	Summary      string           `json:"summary"`
	Icon         string           `json:"icon"`
	Tags         []string         `json:"tags"`
	Languages    []sdk.Language   `json:"languages"`
	Templates    []templateJSON   `json:"templates"`
	Capabilities []sdk.Capability `json:"capabilities"`
	Settings     []settingJSON    `json:"settings"`
}

type templateJSON struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Languages   []sdk.Language `json:"languages"`
}

type settingJSON struct {
	Name        string        `json:"name"`
	Type        sdk.FieldType `json:"type"`
	Required    bool          `json:"required"`
	Secret      bool          `json:"secret"`
	FileOnly    bool          `json:"file_only"`
	Default     any           `json:"default"` // durations as text, such as 30s
	Options     []string      `json:"options,omitempty"`
	Min         *float64      `json:"min,omitempty"` // seconds for durations
	Max         *float64      `json:"max,omitempty"`
	Pattern     string        `json:"pattern,omitempty"`
	Label       string        `json:"label,omitempty"`
	Description string        `json:"description,omitempty"`
	Placeholder string        `json:"placeholder,omitempty"`
	Items       *itemsJSON    `json:"items,omitempty"`  // of a list; strings without it
	Fields      []settingJSON `json:"fields,omitempty"` // of a block
	Repeated    bool          `json:"repeated,omitempty"`
}

// itemsJSON is what the items of a list are.
type itemsJSON struct {
	Type    sdk.FieldType `json:"type"`
	Options []string      `json:"options,omitempty"`
	Min     *float64      `json:"min,omitempty"`
	Max     *float64      `json:"max,omitempty"`
	Pattern string        `json:"pattern,omitempty"`
}

func itemsOf(f sdk.Field) *itemsJSON {
	if f.Items == nil {
		return nil
	}
	return &itemsJSON{f.Items.Type, f.Items.Options, f.Items.Min, f.Items.Max, f.Items.Pattern}
}

func newDescriptionJSON(d sdk.Description) descriptionJSON {
	j := descriptionJSON{
		Name: d.Name, Version: d.Version, Summary: d.Summary, Icon: d.Icon, Tags: append([]string{}, d.Tags...),
		// Lists, also where there is nothing in them.
		Languages: append([]sdk.Language{}, d.Languages...), Capabilities: append([]sdk.Capability{}, d.Capabilities...),
		Templates: []templateJSON{}, Settings: settingsOf(d.Schema),
	}
	for _, t := range d.Templates {
		j.Templates = append(j.Templates, templateJSON{t.Name, t.Description, append([]sdk.Language{}, t.Languages...)})
	}
	return j
}

func settingsOf(schema sdk.Schema) []settingJSON {
	settings := []settingJSON{}
	for _, f := range schema {
		standard := f.Default
		if age, ok := standard.(time.Duration); ok {
			standard = age.String()
		}
		one := settingJSON{
			Name: f.Name, Type: f.Type, Required: f.Required, Secret: f.Secret, FileOnly: f.FileOnly, Default: standard, Options: f.Options,
			Min: f.Min, Max: f.Max, Pattern: f.Pattern, Label: f.Label, Description: f.Description, Placeholder: f.Placeholder, Items: itemsOf(f),
			Repeated: f.Repeated,
		}
		if f.Type == sdk.TypeBlock {
			one.Fields = settingsOf(f.Fields)
		}
		settings = append(settings, one)
	}
	return settings
}

// updatePage writes a page anew in one step, so that nobody sees half of it.
func updatePage(path string, d sdk.Description) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := markdown.UpdateProvider(string(old), d)
	if err != nil || text == string(old) {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return ondisk.WriteFile(path, []byte(text), info.Mode().Perm())
}
