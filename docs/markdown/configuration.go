package markdown

import (
	"fmt"
	"regexp"
)

var (
	pluginDir = regexp.MustCompile(`(?m)^plugin_dir\s*=.*$`)
	provider  = regexp.MustCompile(`(?m)^provider "`)
	tenant    = regexp.MustCompile(`(?m)^tenant "`)
)

// Configuration makes a whole configuration of a block that shows a piece of
// one: what is missing is added, and plugins are looked for in the directory.
func (b Block) Configuration(plugins string) string {
	text := fmt.Sprintf("plugin_dir = %q\n", plugins) + pluginDir.ReplaceAllString(b.Code, "")
	if !provider.MatchString(text) {
		text += "provider \"self_managed\" {}\n"
	}
	if !tenant.MatchString(text) {
		text += "tenant \"docs\" { token_sha256 = [\"7f5f14bcd41ee32cfbf0d19d28bd0bc26f9dd7cdcf79c2a3d4d5ee0ed10d1e3a\"] }\n"
	}
	return text
}
