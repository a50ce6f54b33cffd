package markdown

import (
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sections are what is generated of a description, by the name that marks it in a
// page.
var sections = []struct {
	name    string
	content func(sdk.Description) string
}{
	{"settings", func(d sdk.Description) string { return Settings(d.Schema) }},
	{"templates", Templates},
	{"capabilities", Capabilities},
}

// Provider is a page about a provider, with nothing in it but what the provider says
// of itself. Whoever writes more around the generated sections keeps them true with
// UpdateProvider.
func Provider(d sdk.Description) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n```hcl\n%s```\n", Cell(d.Name), Cell(d.Summary), sampleBlock(d))
	for _, s := range []struct{ heading, name string }{
		{"Settings", "settings"}, {"Languages and templates", "templates"}, {"Capabilities", "capabilities"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n<!-- generated: %s -->\n<!-- end -->\n", s.heading, s.name)
	}
	text, err := UpdateProvider(b.String(), d)
	if err != nil {
		panic(err) // the sections stand just above
	}
	return text
}

// UpdateProvider writes the generated sections of a page about a provider anew: those
// of settings, templates and capabilities, as far as the page has them. A page
// without any is an error.
func UpdateProvider(text string, d sdk.Description) (string, error) {
	found := false
	for _, s := range sections {
		if !strings.Contains(text, "<!-- generated: "+s.name+" -->") {
			continue
		}
		found = true
		var err error
		if text, err = Parse(text).WithGenerated(s.name, s.content(d)); err != nil {
			return "", err
		}
	}
	if !found {
		return "", fmt.Errorf("the page has no section marked <!-- generated: settings -->, templates or capabilities")
	}
	return text, nil
}

// Templates is a table of the templates and the languages that they are for, and a
// line with those that no template lists.
func Templates(d sdk.Description) string {
	var b strings.Builder
	b.WriteString("| template | languages | what it is |\n| --- | --- | --- |\n")
	for _, t := range d.Templates {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", Cell(t.Name), listed(t.Languages), Cell(t.Description))
	}
	if len(d.Languages) > 0 {
		fmt.Fprintf(&b, "\nLanguages: %s.\n", listed(d.Languages))
	}
	return b.String()
}

// Capabilities is a line with what the provider can do beyond the least.
func Capabilities(d sdk.Description) string {
	if len(d.Capabilities) == 0 {
		return "None beyond executing code."
	}
	quoted := make([]string, len(d.Capabilities))
	for i, c := range d.Capabilities {
		quoted[i] = "`" + Cell(string(c)) + "`"
	}
	return strings.Join(quoted, ", ")
}

func listed(languages []sdk.Language) string {
	words := make([]string, len(languages))
	for i, l := range languages {
		words[i] = Cell(string(l))
	}
	return strings.Join(words, ", ")
}

// sampleBlock is a provider block with the settings that must be there.
func sampleBlock(d sdk.Description) string {
	var b strings.Builder
	writeSample(&b, d, fmt.Sprintf("provider %q", d.Name), d.Schema, "")
	return b.String()
}

// writeSample writes a block with the settings and blocks that must be there.
func writeSample(b *strings.Builder, d sdk.Description, header string, schema sdk.Schema, indentation string) {
	width := 0
	var blocks sdk.Schema
	for _, f := range schema {
		switch {
		case f.Type == sdk.TypeBlock && (f.Required || f.CheckCount(0) != nil):
			blocks = append(blocks, f)
		case f.Required:
			width = max(width, len(f.Name))
		}
	}
	if width == 0 && len(blocks) == 0 {
		fmt.Fprintf(b, "%s%s {}\n", indentation, header)
		return
	}
	fmt.Fprintf(b, "%s%s {\n", indentation, header)
	for _, f := range schema {
		if f.Required && f.Type != sdk.TypeBlock {
			fmt.Fprintf(b, "%s  %-*s = %s\n", indentation, width, f.Name, sampleValue(d, f))
		}
	}
	for _, f := range blocks {
		least := 1
		if f.Min != nil {
			least = max(least, int(*f.Min))
		}
		for range least {
			writeSample(b, d, f.Name, f.Fields, indentation+"  ")
		}
	}
	fmt.Fprintf(b, "%s}\n", indentation)
}

// sampleValue is a value that shows the type of a setting.
func sampleValue(d sdk.Description, f sdk.Field) string {
	switch {
	case f.Secret && f.Type == sdk.TypeString:
		return fmt.Sprintf("env(%q)", strings.ToUpper(d.Name+"_"+f.Name))
	case len(f.Options) > 0:
		return hclString(f.Options[0])
	}
	switch f.Type {
	case sdk.TypeInteger, sdk.TypeNumber:
		if f.Min != nil {
			return number(*f.Min)
		}
		return "1"
	case sdk.TypeBoolean:
		return "true"
	case sdk.TypeDuration:
		return `"60s"`
	case sdk.TypeList:
		item := sdk.Field{Type: sdk.TypeString}
		if f.Items != nil {
			item = *f.Items
		}
		return "[" + sampleValue(d, item) + "]"
	case sdk.TypeMap:
		return `{ name = "…" }`
	default:
		if f.Placeholder != "" {
			return hclString(f.Placeholder)
		}
		return `"…"`
	}
}

// hclString is a string without the templates of HCL.
func hclString(text string) string {
	text = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "${", "$${", "%{", "%%{").Replace(strings.Join(strings.Fields(text), " "))
	return `"` + text + `"`
}
