package config_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

func TestWhereAValueComesFrom(t *testing.T) {
	key := seal.NewKey()
	ring, err := seal.ParseKeys(key)
	assert.NilError(t, err)
	sealed, err := ring.Seal("hunter2")
	assert.NilError(t, err)
	const name = "ORIGIN"
	for expr, want := range map[string]config.Origin{
		`"text"`:                              {Kind: config.OriginLiteral},
		`["a", "b"]`:                          {Kind: config.OriginLiteral},
		`{ a = 1 }`:                           {Kind: config.OriginLiteral},
		`-1.5`:                                {Kind: config.OriginLiteral},
		`null`:                                {Kind: config.OriginDefault},
		`env("ORIGIN")`:                       {Kind: config.OriginEnv, Name: name, Sensitive: true},
		`(env("ORIGIN"))`:                     {Kind: config.OriginEnv, Name: name, Sensitive: true},
		`"${env("ORIGIN")}"`:                  {Kind: config.OriginEnv, Name: name, Sensitive: true},
		`env("NEVER_SET", "a default")`:       {Kind: config.OriginEnv, Name: "NEVER_SET", Sensitive: true},
		`env(env("NEVER_SET", "ORIGIN"))`:     {Kind: config.OriginEnv, Sensitive: true},
		`file("/proc/version")`:               {Kind: config.OriginFile, Name: "/proc/version", Sensitive: true},
		`sealed("` + sealed + `")`:            {Kind: config.OriginSealed, Sensitive: true},
		`"https://${env("ORIGIN")}/"`:         {Kind: config.OriginComputed, Sensitive: true},
		`[env("ORIGIN"), "b"]`:                {Kind: config.OriginComputed, Sensitive: true},
		`{ a = sealed("` + sealed + `") }`:    {Kind: config.OriginComputed, Sensitive: true},
		`env("ORIGIN") == "x" ? "yes" : "no"`: {Kind: config.OriginComputed, Sensitive: true},
	} {
		t.Run(expr, func(t *testing.T) {
			cfg, diags := config.Parse("sandbox.hcl", []byte("provider \"p\" {\n  setting = "+expr+"\n}\ntenant \"t\" { token_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"] }\n"),
				config.WithEnv(func(asked string) (string, bool) {
					value, set := map[string]string{name: "value", config.KeysVariable: key}[asked]
					return value, set
				}))
			assert.Assert(t, !diags.HasErrors(), "%v", diags)
			assert.DeepEqual(t, cfg.Provider("p").Origin("setting"), want)
			assert.DeepEqual(t, cfg.Provider("p").Origin("another"), config.Origin{Kind: config.OriginDefault})
		})
	}
}
