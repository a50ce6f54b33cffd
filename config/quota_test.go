package config_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAPluginGetsTheCostTooIfItHasSuchASetting(t *testing.T) {
	text := "provider \"full\" { cost_per_second = 0.5 }\n" +
		"tenant \"demo\" { token_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"] }\n"
	cfg, diags := config.Parse("x.hcl", []byte(text))
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	p := cfg.Provider("full")
	assert.Equal(t, p.CostPerSecond, 0.5)
	settings, diags := p.Settings(sdk.Schema{{Name: "cost_per_second", Type: sdk.TypeNumber}})
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	assert.DeepEqual(t, settings, sdk.Settings{"cost_per_second": 0.5})
	settings, diags = p.Settings(fullSchema())
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	_, has := settings["cost_per_second"]
	assert.Assert(t, !has)
}
