package config_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestHowPatientRequestsAreBeforeTheNextProviderIsAsked(t *testing.T) {
	usual := config.FailOver{StartGrace: 30 * time.Second, UnclearTimeout: 5 * time.Second}
	for name, test := range map[string]struct {
		settings string
		want     config.FailOver
		fails    string
	}{
		"as usual":            {``, usual, ""},
		"as the file says":    {`start_grace = "2m", spill_after = "1s", unclear_timeout = "500ms"`, config.FailOver{StartGrace: 2 * time.Minute, SpillAfter: time.Second, UnclearTimeout: 500 * time.Millisecond}, ""},
		"not at all":          {`start_grace = "0s", spill_after = "0s", unclear_timeout = "0s"`, config.FailOver{}, ""},
		"not for ever":        {`start_grace = "3h"`, usual, "start_grace"},
		"never less than not": {`spill_after = "-1s"`, usual, "spill_after"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "provider \"mock\" {}\nproviders {\n active = \"mock\"\n" + strings.ReplaceAll(test.settings, ", ", "\n") +
				"\n}\ntenant \"t\" { token_sha256 = [\"" + strings.Repeat("a", 64) + "\"] }\n"
			cfg, diags := config.Parse(filepath.Join(t.TempDir(), "sandbox.hcl"), []byte(text))
			if test.fails != "" {
				assert.Assert(t, diags.HasErrors())
				assert.ErrorContains(t, diags, test.fails)
				return
			}
			assert.Assert(t, !diags.HasErrors(), "%v", diags)
			assert.Equal(t, cfg.FailOver, test.want)
		})
	}
}
