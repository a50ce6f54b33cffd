package wire_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func TestIconsAndTagsAreOfTheirForm(t *testing.T) {
	for name, test := range map[string]struct {
		icon   string
		tags   []string
		refuse string
	}{
		"none of both":                {},
		"a name and tags":             {"cloud-upload", []string{"cloud", "gvisor", "v1.2"}, ""},
		"an image":                    {"data:image/svg+xml;base64,PHN2Zy8+", nil, ""},
		"the largest image":           {image(sdk.MaxIcon), nil, ""},
		"a larger image":              {image(sdk.MaxIcon + 1), nil, "larger than 16 KiB"},
		"a page in place of an image": {"data:text/html;base64,PGI+", nil, "neither a name"},
		"an image that is not base64": {`data:image/svg+xml;utf8,<svg onload="x">`, nil, "neither a name"},
		"an address":                  {"https://example.com/icon.png", nil, "neither a name"},
		"a path":                      {"../icon", nil, "neither a name"},
		"a long name":                 {strings.Repeat("a", 41), nil, "neither a name"},
		"a tag with a space":          {"", []string{"two words"}, "two words"},
		"an empty tag":                {"", []string{""}, "tag"},
		"a tag twice":                 {"", []string{"a", "b", "a"}, "twice"},
		"too many tags":               {"", make([]string, sdk.MaxTags+1), "17 tags"},
	} {
		t.Run(name, func(t *testing.T) {
			err := wire.CheckAppearance(test.icon, test.tags)
			if test.refuse == "" {
				assert.NilError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.refuse)
		})
	}
}

// image is a data URI of that many bytes.
func image(size int) string {
	const head = "data:image/png;base64,"
	return head + strings.Repeat("A", size-len(head))
}
