package config_test

import (
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// The HCL library gives settings in no order, which must not show: another revision
// is another configuration to whoever compares.
func TestTheSameFilesAlwaysHaveTheSameRevision(t *testing.T) {
	t.Parallel()
	for name, main := range map[string]string{
		"right":         "a = file(\"1\")\n b = file(\"2\")\n c = { d = file(\"3\"), e = file(\"4\") }\n",
		"a name twice":  "a = [file(\"1\"), file(\"2\")]\n a = [file(\"1\"), file(\"2\")]\n c = { d = file(\"3\"), e = file(\"4\") }\n",
		"files missing": "a = file(\"5\")\n b = file(\"6\")\n c = { d = file(\"3\"), e = file(\"7\") }\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fs.NewDir(t, "config", fs.WithFile("1", "one"), fs.WithFile("2", "two"), fs.WithFile("3", "three"), fs.WithFile("4", "four"),
				fs.WithFile("x.hcl", "provider \"x\" {\n"+main+"}\nprovider \"y\" {\n  z = file(\"4\")\n}\n"+
					"tenant \"demo\" {\n  token_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]\n}\n"))
			first, _ := config.Load(dir.Join("x.hcl"))
			for range 100 {
				again, _ := config.Load(dir.Join("x.hcl"))
				assert.Equal(t, again.Revision, first.Revision)
			}
		})
	}
}
