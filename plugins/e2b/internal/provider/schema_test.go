package provider_test

import (
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// refused configures a provider that reaches nothing, and returns the setting that it
// names.
func refused(t *testing.T, values map[string]any) string {
	t.Helper()
	p := provider.NewImpatient(hclog.NewNullLogger()).(*provider.Provider)
	defer func() { assert.Check(t, p.Close(t.Context())) }()
	all := map[string]any{"api_key": "e2b_0", "max_retries": int64(0)}
	for name, value := range values {
		all[name] = value
	}
	settings, mistakes := p.Describe().Schema.Resolve(all)
	assert.Equal(t, len(mistakes), 0, "%v", mistakes)
	err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "e2b", BrokerID: "b", StateDir: t.TempDir(), Settings: settings})
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok, "%v", err)
	return e.Field
}

func TestARegionIsNotLeftByMistake(t *testing.T) {
	// Nobody listens there: what passes the check fails to connect, which is of no setting.
	const nowhere = "http://127.0.0.1:1"
	for name, c := range map[string]struct {
		values map[string]any
		field  string
	}{
		"the EU at the default domain":            {map[string]any{"region": "eu"}, "region"},
		"the EU with sandboxes in the US":         {map[string]any{"region": "eu", "api_url": nowhere}, "region"},
		"the EU at a domain":                      {map[string]any{"region": "eu", "domain": "eu.invalid", "api_url": nowhere}, ""},
		"the EU at two URLs":                      {map[string]any{"region": "eu", "api_url": nowhere, "sandbox_url": nowhere}, ""},
		"the US at another domain":                {map[string]any{"region": "us", "domain": "eu.invalid"}, "region"},
		"the US at another URL":                   {map[string]any{"region": "us", "api_url": nowhere}, "region"},
		"another domain, and no region that says": {map[string]any{"domain": "eu.invalid", "api_url": nowhere}, ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, refused(t, c.values), c.field) })
	}
}
