package difference_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config/difference"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func secrets() difference.Secrets {
	return difference.Secrets{
		Schemas: map[string]sdk.Schema{"e2b": {
			{Name: "api_key", Type: sdk.TypeString, Secret: true},
			{Name: "headers", Type: sdk.TypeMap, Secret: true},
			{Name: "pin", Type: sdk.TypeInteger, Secret: true},
			{Name: "region", Type: sdk.TypeString},
			{Name: "size", Type: sdk.TypeInteger},
			{Name: "auth", Type: sdk.TypeBlock, Fields: sdk.Schema{
				{Name: "user", Type: sdk.TypeString},
				{Name: "password", Type: sdk.TypeString, Secret: true},
			}},
		}},
		Mask: func(secret string) string {
			if len(secret) < 8 {
				return "****"
			}
			return "****" + secret[len(secret)-4:]
		},
	}
}

// Each directory has a file before and after a change. What begins with s3cret is to be
// seen nowhere.
func TestDifferences(t *testing.T) {
	dirs, err := os.ReadDir("testdata")
	assert.NilError(t, err)
	for _, dir := range dirs {
		if !dir.IsDir() {
			continue
		}
		t.Run(dir.Name(), func(t *testing.T) {
			read := func(name string) []byte {
				text, err := os.ReadFile(filepath.Join("testdata", dir.Name(), name))
				assert.NilError(t, err)
				return text
			}
			before, after := read("before.hcl"), read("after.hcl")
			text, err := difference.Unified([]difference.File{{Name: "sandbox.hcl", Before: before, After: after}, {Name: "same.hcl", Before: before, After: before}}, secrets())
			assert.NilError(t, err)
			golden.Assert(t, text, filepath.Join(dir.Name(), "difference.golden"))
			assert.Check(t, !strings.Contains(text, "s3cret"))
			assert.Check(t, !strings.Contains(text, "\x00"))
		})
	}
}

func TestFilesThatAreTheSameDoNotDiffer(t *testing.T) {
	text, err := difference.Unified([]difference.File{{Name: "a", Before: []byte("log {}\n"), After: []byte("log {}\n")}}, secrets())
	assert.NilError(t, err)
	assert.Equal(t, text, "")
}

func TestAnEndOfLineIsADifference(t *testing.T) {
	text, err := difference.Unified([]difference.File{{Name: "a", Before: []byte("log {}\n"), After: []byte("log {}")}}, secrets())
	assert.NilError(t, err)
	assert.Check(t, is.Contains(text, "No newline at end of file"))
}

// FuzzSecretsStay looks for a secret that is given as one, whatever stands around it.
func FuzzSecretsStay(f *testing.F) {
	f.Add("provider \"e2b\" {\n  api_key = \"", "\"\n}\n", "# log {}\n")
	f.Add("provider \"x\" {\n  anything = [\"", "\", <<EOT\ntext\nEOT\n]\n}\n", "")
	f.Add("provider \"e2b\" {\n  headers = { a = \"", "\" } # \"x\"\n}\n", "log {}")
	f.Add("audit {\n  webhook_token = env(\"A\", \"", "\")\n}\n", "")
	const secret = "s3cret-that-nobody-sees"
	f.Fuzz(func(t *testing.T, before, behind, other string) {
		// Where it is no secret, as in a name, it may be seen.
		if !strings.HasPrefix(before, "provider \"e2b\" {\n  api_key = \"") || strings.ContainsAny(before[30:], "\"\n$%\\") || !strings.HasPrefix(behind, "\"\n") || strings.Contains(before+behind+other, "s3cret") {
			return
		}
		text, err := difference.Unified([]difference.File{{Name: "a", Before: []byte(before + secret + behind), After: []byte(other)}}, secrets())
		if err == nil && strings.Contains(text, secret) {
			t.Fatalf("%s", text)
		}
	})
}

// What was turned off in a comment is a secret in whatever form, also where other lines change.
func TestNoCommentTellsASecret(t *testing.T) {
	for _, comment := range []string{
		"# api_key = <<EOT\n# s3cret-aaaa\n# EOT", "/* api_key = <<EOT\ns3cret-aaaa\nEOT */", `# api_key = "ab\"s3cret-aaaa"`,
		`# a 19" rack: api_key = "s3cret-aaaa"`, `# api_key = "s3cret-aaaa`, `# api_key = 'my s3cret-aaaa'`, "// api_key: s3cret-aaaa",
		"/* api_key = 1\n * s3cret-aaaa\n */",
	} {
		text, err := difference.Unified([]difference.File{{Name: "f", Before: []byte(comment + "\nlog {}\n"), After: []byte(comment + "\nlog {}\nmetrics {}\n")}}, secrets())
		assert.NilError(t, err)
		assert.Check(t, !strings.Contains(text, "s3cret") && strings.Contains(text, "+metrics {}"), "%s", text)
	}
}

// The schema of one plugin says nothing of the settings of another.
func TestABlockWithAnotherPluginHasNoSchema(t *testing.T) {
	text, err := difference.Unified([]difference.File{{
		Name:   "f",
		Before: []byte("provider \"e2b\" {\n  plugin = \"e2b\"\n  region = \"us\"\n}\n"),
		After:  []byte("provider \"e2b\" {\n  plugin = \"other\"\n  region = \"s3cret\"\n}\n"),
	}}, secrets())
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(text, "s3cret"), "%s", text)
	assert.Check(t, strings.Contains(text, `-  region = "us"`), "%s", text)
}

// Somebody may write a token where its sum belongs.
func TestATokenInThePlaceOfItsSumIsMasked(t *testing.T) {
	text, err := difference.Unified([]difference.File{{Name: "f", After: []byte("tenant \"a\" { token_sha256 = [\"s3cret-short\", \"s3cret-long-longer-and-longer\"] }\n")}}, secrets())
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(text, "s3cret"), "%s", text)
}
