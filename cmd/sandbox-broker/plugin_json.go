package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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
	Default     any           `json:"default"` // durations as text, such as 30s
	Options     []string      `json:"options,omitempty"`
	Min         *float64      `json:"min,omitempty"` // seconds for durations
	Max         *float64      `json:"max,omitempty"`
	Pattern     string        `json:"pattern,omitempty"`
	Label       string        `json:"label,omitempty"`
	Description string        `json:"description,omitempty"`
	Placeholder string        `json:"placeholder,omitempty"`
}

func newDescriptionJSON(d sdk.Description) descriptionJSON {
	j := descriptionJSON{
		Name: d.Name, Version: d.Version, Summary: d.Summary, Icon: d.Icon, Tags: append([]string{}, d.Tags...),
		// Lists, also where there is nothing in them.
		Languages: append([]sdk.Language{}, d.Languages...), Capabilities: append([]sdk.Capability{}, d.Capabilities...),
		Templates: []templateJSON{}, Settings: []settingJSON{},
	}
	for _, t := range d.Templates {
		j.Templates = append(j.Templates, templateJSON{t.Name, t.Description, append([]sdk.Language{}, t.Languages...)})
	}
	for _, f := range d.Schema {
		standard := f.Default
		if age, ok := standard.(time.Duration); ok {
			standard = age.String()
		}
		j.Settings = append(j.Settings, settingJSON{
			Name: f.Name, Type: f.Type, Required: f.Required, Secret: f.Secret, Default: standard, Options: f.Options,
			Min: f.Min, Max: f.Max, Pattern: f.Pattern, Label: f.Label, Description: f.Description, Placeholder: f.Placeholder,
		})
	}
	return j
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
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // gone already if all went well
	_, err = file.WriteString(text)
	if err == nil {
		err = file.Chmod(info.Mode().Perm())
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
