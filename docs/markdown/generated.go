package markdown

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// WithGenerated returns the page with new content between the two comments
// that mark a generated section of that name:
//
//	<!-- generated: name -->
//	<!-- end -->
func (p Page) WithGenerated(name, content string) (string, error) {
	const end = "<!-- end -->"
	begin := "<!-- generated: " + name + " -->\n"
	before, rest, ok := strings.Cut(p.Text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the page has no section marked %q and %q", strings.TrimSpace(begin), end)
	}
	return before + begin + "\n" + strings.TrimSpace(content) + "\n\n" + end + after, nil
}

// Settings is a schema as a table, one row a setting. Those of a block follow it, with
// its name before theirs.
func Settings(schema sdk.Schema) string {
	var b strings.Builder
	b.WriteString("| setting | type | default | allowed | what it is |\n| --- | --- | --- | --- | --- |\n")
	for path, f := range schema.Paths() {
		kind := TypeOf(f)
		if f.Secret {
			kind += ", secret"
		}
		if f.FileOnly {
			kind += ", file only"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", path, kind, standard(f), allowed(f), Cell(f.Description))
	}
	return b.String()
}

// TypeOf is the type of a setting in words, such as "list of integers".
func TypeOf(f sdk.Field) string {
	if f.Repeated {
		return string(f.Type) + ", repeated"
	}
	if f.Items == nil || f.Items.Type == sdk.TypeString {
		return string(f.Type)
	}
	return fmt.Sprintf("%s of %ss", f.Type, f.Items.Type)
}

func standard(f sdk.Field) string {
	switch {
	case f.Required:
		return "required"
	case f.Default == nil:
		return ""
	}
	items, ok := list(f.Default)
	if !ok {
		items, ok = pairs(f.Default)
	}
	switch {
	case !ok:
		return fmt.Sprintf("`%v`", f.Default)
	case len(items) > 3: // too much for a cell
		return fmt.Sprintf("%d items", len(items))
	case len(items) == 0:
		return "none"
	}
	return "`" + strings.Join(items, "`, `") + "`"
}

// list is a default as the author has written it, or as it comes from a plugin.
func list(standard any) (items []string, ok bool) {
	switch v := standard.(type) {
	case []string:
		return v, true
	case []any:
		for _, item := range v {
			items = append(items, fmt.Sprint(item))
		}
		return items, true
	case []int:
		return texts(v), true
	case []int64:
		return texts(v), true
	case []float64:
		return texts(v), true
	default:
		return nil, false
	}
}

func texts[T any](list []T) []string {
	items := make([]string, len(list))
	for i, item := range list {
		items[i] = fmt.Sprint(item)
	}
	return items
}

// pairs are the keys and values of a default that is a map, as the file has them.
func pairs(standard any) (items []string, ok bool) {
	switch v := standard.(type) {
	case map[string]string:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, fmt.Sprintf("%s = %q", key, v[key]))
		}
		return items, true
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, fmt.Sprintf("%s = %q", key, fmt.Sprint(v[key])))
		}
		return items, true
	default:
		return nil, false
	}
}

// allowed words the constraints of a field.
func allowed(f sdk.Field) string {
	var rules []string
	for _, option := range f.Options {
		rules = append(rules, "`"+option+"`")
	}
	unit := map[sdk.FieldType]string{
		sdk.TypeDuration: " s", sdk.TypeString: " characters", sdk.TypeList: " items", sdk.TypeMap: " items", sdk.TypeBlock: " blocks",
	}[f.Type]
	switch {
	case f.Min != nil && f.Max != nil:
		rules = append(rules, fmt.Sprintf("%s to %s%s", number(*f.Min), number(*f.Max), unit))
	case f.Min != nil:
		rules = append(rules, fmt.Sprintf("at least %s%s", number(*f.Min), unit))
	case f.Max != nil:
		rules = append(rules, fmt.Sprintf("at most %s%s", number(*f.Max), unit))
	}
	if f.Pattern != "" {
		rules = append(rules, "`"+Cell(f.Pattern)+"`")
	}
	if f.Items != nil {
		if each := allowed(*f.Items); each != "" {
			rules = append(rules, "each: "+each)
		}
	}
	return strings.Join(rules, ", ")
}

// number writes a bound without an exponent.
func number(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%f", v), "0"), ".")
}

// Cell makes a text fit for a table.
func Cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
