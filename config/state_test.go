package config_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// Whoever writes the password of a database into the file is told so, and shown no password.
func TestThePasswordOfADatabaseIsNotShown(t *testing.T) {
	for _, url := range []string{
		"postgres://broker:hunter2@db.example.com/sandbox",
		"postgresql://broker@db.example.com/sandbox?password=hunter2",
		"postgres://broker:hunter2@", // no URL of a database
		"postgres://broker:hunter2@[/sandbox",
	} {
		for _, line := range []string{"state = \"" + url + "\"", "state = [\"" + url + "\"]", "state = \"" + url, "stat = \"" + url + "\""} {
			_, diags := config.Parse("sandbox.hcl", []byte(line+"\nprovider \"p\" {}\n"))
			assert.Assert(t, diags.HasErrors(), line)
			var shown strings.Builder
			assert.NilError(t, diags.Write(&shown, config.Style{}))
			assert.Check(t, !strings.Contains(shown.String()+diags.Error(), "hunter2"), "%s", shown.String())
		}
	}
	_, diags := config.Parse("sandbox.hcl", []byte("state = \"postgres://broker:hunter2@db.example.com/sandbox\"\nprovider \"p\" {}\n"))
	assert.Check(t, is.ErrorContains(diags, "state has a password"))
}
