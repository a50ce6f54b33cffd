package ragflow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/ragflow"
)

func sealed(secret string) (string, error) { return "sb1:" + strings.Repeat("x", len(secret)), nil }

// Each file is settings in one of their forms, with the blocks and the notes that come out.
func TestSettingsBecomeBlocks(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	assert.NilError(t, err)
	assert.Assert(t, len(files) > 0)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			var seal ragflow.Seal
			if strings.Contains(file, "sealed") {
				seal = sealed
			}
			got, err := ragflow.Import(text, seal)
			assert.NilError(t, err)
			golden.Assert(t, string(got.HCL)+"\n"+strings.Join(got.Notes, "\n")+"\n", strings.TrimSuffix(filepath.Base(file), ".json")+".golden")
			assert.Check(t, !strings.Contains(string(got.HCL)+strings.Join(got.Notes, ""), "s3cret"))
			_, diags := config.Syntax("a.hcl", got.HCL)
			assert.Check(t, !diags.HasErrors(), "%v", diags)
		})
	}
}

func TestSettingsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		``:                        "not JSON",
		`7`:                       "must be a JSON object",
		`{"data": 5}`:             `the settings of "data" are not an object`,
		`{"sandbox.e2b": "{"}`:    `the settings of "e2b" are not JSON`,
		`{"e2b": [1]}`:            `the settings of "e2b" are not an object`,
		`{"ssh": {"host": "a"}}`:  "without a sandbox",
		`{"e2b": {}}`:             "it has no api_key",
		`{"e2b": {"api_key": 5}}`: "must be text",
		`{"self_managed": {"max_memory": "lots"}}`:      "must be a size of memory",
		`{"self_managed": {"pool_size": [1]}}`:          "must be text, a number",
		`{"self_managed": {"pool_size": 1e1000000000}}`: "is a number that cannot be",
		`{"e2b": {"api_key": "k"}} {}`:                  "something follows",
		`{"e2b": "{} {}"}`:                              "are not JSON",
		`{"ucloud_agent_sandbox": {"domain": "d", "api_url": "https://u:p@example.com"}}`: "without a name or a password",
		`[]`: "no settings of a provider",
	} {
		_, err := ragflow.Import([]byte(text), nil)
		assert.Check(t, is.ErrorContains(err, want), text)
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"active":"e2b","e2b":{"api_key":"k${x}\"","region":"%{if}"}}`))
	f.Add([]byte(`[{"name":"sandbox.self_managed","value":"{\"max_memory\":\"999999999999g\",\"pool_size\":1e999}"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ragflow.Import(text, nil)
		if err != nil {
			return
		}
		_, diags := config.Syntax("a.hcl", got.HCL)
		assert.Assert(t, !diags.HasErrors(), "%s\n%v", got.HCL, diags)
	})
}
