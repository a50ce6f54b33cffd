package config_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func TestWhereTracesGo(t *testing.T) {
	for block, want := range map[string]config.Tracing{
		``: {},
		`tracing { endpoint = "http://127.0.0.1:4318" }`:  {Endpoint: "http://127.0.0.1:4318/v1/traces", SampleRatio: 1},
		`tracing { endpoint = "https://t.example.com/" }`: {Endpoint: "https://t.example.com/v1/traces", SampleRatio: 1},
		"tracing {\n endpoint = \"https://t.example.com/otlp/x\"\n sample_ratio = 0\n headers = { Key = \"v\" }\n follow_callers = true\n name_tenants = true\n}": {
			Endpoint: "https://t.example.com/otlp/x", Headers: map[string]string{"Key": "v"}, FollowCallers: true, NameTenants: true,
		},
	} {
		t.Run(block, func(t *testing.T) {
			cfg, diags := config.Parse("/etc/sb/sandbox.hcl", []byte(block+aroundAudit))
			assert.Assert(t, !diags.HasErrors(), "%v", diags)
			assert.DeepEqual(t, cfg.Tracing, want)
		})
	}
}
