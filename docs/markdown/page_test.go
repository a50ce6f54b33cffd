package markdown_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const sample = "# The `title`, with: signs\nSee [a](x.md) and [b](y.md#part), not `[c](z.md)`.\n\n```sh\n# no heading\n[no](link.md)\n```\n## Part\n```\nplain\n```\n"

func TestAPageIsTakenApart(t *testing.T) {
	page := markdown.Parse(sample)
	assert.DeepEqual(t, page.Links, []string{"x.md", "y.md#part"})
	assert.DeepEqual(t, page.Headings, []string{"The `title`, with: signs", "Part"})
	assert.DeepEqual(t, page.Anchors(), []string{"the-title-with-signs", "part"})
	assert.DeepEqual(t, page.Blocks, []markdown.Block{
		{Language: "sh", Code: "# no heading\n[no](link.md)\n", Line: 4},
		{Code: "plain\n", Line: 9},
	})
}

func TestAGeneratedSectionIsReplacedAndTheRestStays(t *testing.T) {
	page := markdown.Parse("above\n<!-- generated: x -->\nold\n<!-- end -->\nbelow\n")
	text, err := page.WithGenerated("x", "new\n")
	assert.NilError(t, err)
	assert.Equal(t, text, "above\n<!-- generated: x -->\n\nnew\n\n<!-- end -->\nbelow\n")
	again, err := markdown.Parse(text).WithGenerated("x", "new\n")
	assert.NilError(t, err)
	assert.Equal(t, again, text)
	_, err = page.WithGenerated("y", "new\n")
	assert.ErrorContains(t, err, `"<!-- generated: y -->"`)
}

func TestASchemaBecomesATable(t *testing.T) {
	got := markdown.Settings(sdk.Schema{
		{Name: "size", Type: sdk.TypeInteger, Default: 3, Min: sdk.Bound(1), Max: sdk.Bound(1 << 20), Description: "How many."},
		{Name: "key", Type: sdk.TypeString, Required: true, Secret: true, Pattern: "a|b"},
		{Name: "wait", Type: sdk.TypeDuration, Default: 90 * time.Second, Min: sdk.Bound(0.5)},
		{Name: "kind", Type: sdk.TypeString, Options: []string{"x", "y"}},
		{Name: "nothing", Type: sdk.TypeMap, Default: map[string]string{}},
		{Name: "sent", Type: sdk.TypeMap, Default: map[string]any{"b": "2", "a": "1"}},
		{Name: "path", Type: sdk.TypeString, FileOnly: true},
		{Name: "ports", Type: sdk.TypeList, Default: []any{80.0}, Max: sdk.Bound(3), Items: &sdk.Field{Type: sdk.TypeInteger, Min: sdk.Bound(1)}},
	})
	assert.Equal(t, got, `| setting | type | default | allowed | what it is |
| --- | --- | --- | --- | --- |
| `+"`size` | integer | `3` | 1 to 1048576 | How many. |\n| `key` | string, secret | required | `a\\|b` |  |\n| `wait` | duration | `1m30s` | at least 0.5 s |  |\n| `kind` | string |  | `x`, `y` |  |\n| `nothing` | map | none |  |  |\n| `sent` | map | `a = \"1\"`, `b = \"2\"` |  |  |\n| `path` | string, file only |  |  |  |\n| `ports` | list of integers | `80` | at most 3 items, each: at least 1 |  |\n")
}
