package admin_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// given reads settings as the API does.
func given(t *testing.T, text string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	settings := map[string]any{}
	assert.NilError(t, decoder.Decode(&settings))
	return settings
}

const withKey = "key_file = \"keys\"\n"

// Sealing gives another text each time.
var sealedText = regexp.MustCompile(`sealed\("sb1:[^"]*"\)`)

func TestSettingsAreMergedIntoTheBlock(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	ring, err := seal.ParseKeys(sealingKey)
	assert.NilError(t, err)
	sealed, err := ring.Seal("the-present-secret")
	assert.NilError(t, err)
	for name, test := range map[string]struct {
		before, settings, after string
	}{
		"every type as it was written": {
			"provider \"p\" {}\n",
			`{"endpoint": "x", "timeout": 90, "size": 8, "share": 0.5, "on": true, "zones": ["a", "b"], "labels": {"k": "v"}}`,
			"provider \"p\" {\n  endpoint = \"x\"\n  labels = {\n    k = \"v\"\n  }\n  on      = true\n  share   = 0.5\n  size    = 8\n  timeout = 90\n  zones   = [\"a\", \"b\"]\n}\n",
		},
		"lists of numbers": {
			"provider \"p\" {\n  ports = [80, 443] # of the web\n}\n", `{"ports": [80, 8080], "shares": [0.5, 1]}`,
			"provider \"p\" {\n  ports  = [80, 8080] # of the web\n  shares = [0.5, 1]\n}\n",
		},
		"a list of numbers as it is":             {"provider \"p\" {\n  ports = [ 80,443 ]\n}\n", `{"ports": [80, 443]}`, "provider \"p\" {\n  ports = [ 80,443 ]\n}\n"},
		"a duration in words":                    {"provider \"p\" {}\n", `{"timeout": "90s"}`, "provider \"p\" {\n  timeout = \"90s\"\n}\n"},
		"what is so already, in other words":     {"provider \"p\" {\n  timeout = \"1m\"\n}\n", `{"timeout": 60, "size": 4, "endpoint": "https://example.com"}`, "provider \"p\" {\n  timeout = \"1m\"\n}\n"},
		"null removes":                           {"provider \"p\" {\n  size = 8 # more\n  on = true\n}\n", `{"size": null, "share": null}`, "provider \"p\" {\n  on = true\n}\n"},
		"a secret is sealed":                     {withKey + "provider \"p\" {\n}\n", `{"api_key": "hunter2-hunter2"}`, withKey + "provider \"p\" {\n  api_key = SEALED\n}\n"},
		"a secret in the clear is sealed":        {withKey + "provider \"p\" {\n  api_key = \"plain\" # for now\n}\n", `{"api_key": "hunter2-hunter2"}`, withKey + "provider \"p\" {\n  api_key = SEALED # for now\n}\n"},
		"without a key it stays in the clear":    {"provider \"p\" {\n  api_key = \"plain\"\n}\n", `{"api_key": "hunter2"}`, "provider \"p\" {\n  api_key = \"hunter2\"\n}\n"},
		"a masked secret changes nothing":        {withKey + "provider \"p\" {\n  api_key = sealed(\"" + sealed + "\")\n}\n", `{"api_key": "****cret"}`, withKey + "provider \"p\" {\n  api_key = SEALED\n}\n"},
		"so does a short one":                    {"provider \"p\" {\n  api_key = \"short\"\n}\n", `{"api_key": "****"}`, "provider \"p\" {\n  api_key = \"short\"\n}\n"},
		"a part of a secret map":                 {"provider \"p\" {\n  headers = { a = \"first-secret\", b = \"second-secret\" }\n}\n", `{"headers": {"a": "****cret", "b": "third"}}`, "provider \"p\" {\n  headers = {\n    a = \"first-secret\"\n    b = \"third\"\n  }\n}\n"},
		"what env gives comes back as it showed": {"provider \"p\" {\n  endpoint = env(\"MERGE_ENDPOINT\")\n}\n", `{"endpoint": "****.com", "size": 9}`, "provider \"p\" {\n  endpoint = env(\"MERGE_ENDPOINT\")\n  size     = 9\n}\n"},
		"what was sealed stays so":               {withKey + "provider \"p\" {\n  endpoint = sealed(\"" + sealed + "\")\n}\n", `{"endpoint": "https://other.example.com"}`, withKey + "provider \"p\" {\n  endpoint = SEALED\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, test.before)
			_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, test.settings)})
			assert.NilError(t, err)
			assert.Equal(t, sealedText.ReplaceAllString(d.text(), "SEALED"), test.after)
			before := sealedText.FindString(test.before)
			if name != "what was sealed stays so" && before != "" {
				assert.Assert(t, is.Contains(d.text(), before), "it was sealed anew")
			}
		})
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	const before = "provider \"p\" {\n  endpoint = env(\"MERGE_ENDPOINT\")\n}\n"
	for name, test := range map[string]struct {
		settings string
		fields   []string
		says     string
	}{
		"all mistakes at once":            {`{"size": 0, "timeout": "soon", "on": "yes", "zones": [1], "sizes": 1}`, []string{"on", "size", "sizes", "timeout", "zones"}, "on: must be true or false"},
		"items out of bounds":             {`{"ports": ["80"], "shares": [2]}`, []string{"ports", "shares"}, "number 1, that must be at most 1"},
		"numbers that are none":           {`{"size": 1.5, "share": 1e400}`, []string{"share", "size"}, "must be a"},
		"what is the file's":              {`{"env": ["HOME"], "plugin": "x", "sha256": "y"}`, []string{"env", "plugin", "sha256"}, "changed in the file"},
		"a secret without a key":          {`{"api_key": "hunter2"}`, []string{"api_key"}, "keygen"},
		"a secret of parts without a key": {`{"headers": {"a": "b"}}`, []string{"headers"}, "one by one"},
		"how another secret is shown":     {`{"api_key": "****ter2"}`, []string{"api_key"}, "is shown"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, before)
			_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, test.settings)})
			wrong, ok := errors.AsType[admin.FieldErrors](err)
			assert.Assert(t, ok, "%v", err)
			var fields []string
			for _, f := range wrong {
				fields = append(fields, f.Field)
			}
			assert.DeepEqual(t, fields, test.fields)
			assert.Check(t, !strings.Contains(err.Error(), "hunter2"))
			assert.Check(t, is.Contains(err.Error(), test.says))
			assert.Equal(t, d.text(), before)
			assert.Equal(t, d.InForce().Number, 1)
		})
	}
	t.Run("what the file computes", func(t *testing.T) {
		d := newDaemon(t, before)
		_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"endpoint": "x"}`)})
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeConflict)
		assert.Assert(t, is.Contains(err.Error(), "sandbox.hcl:2"))
		assert.Equal(t, d.text(), before)
	})
}

func TestNothingSecretIsShown(t *testing.T) {
	t.Setenv("MERGE_ENDPOINT", "https://env.example.com")
	d := newDaemon(t, "provider \"p\" {\n  api_key  = \"plain-secret\"\n  headers  = { a = \"first-secret\", b = \"x\" }\n  endpoint = env(\"MERGE_ENDPOINT\")\n  zones    = [\"${env(\"MERGE_ENDPOINT\")}-a\", \"b\"]\n  size     = env(\"NEVER_SET\", \"x\") == \"x\" ? 7 : 8\n}\n")
	shown := admin.NewConfigurator(d).Configuration()
	values := map[string]any{}
	for _, s := range shown.Settings["p"] {
		values[s.Name] = s.Value
	}
	assert.DeepEqual(t, values, map[string]any{
		"api_key": "****cret", "headers": map[string]string{"a": "****cret", "b": "****"}, "endpoint": "****.com",
		"timeout": "30s", "size": "****", "share": nil, "on": nil, "zones": []string{"****om-a", "****"}, "labels": nil, "ports": nil, "shares": nil, "auth": nil, "rules": nil,
		"program": "/usr/bin/true", "directory": nil,
	})
	assert.Equal(t, shown.ReadOnly, "")
	assert.Assert(t, !shown.Seals && !shown.Differs && shown.LastRefused == nil)
	assert.DeepEqual(t, shown.Files, []string{d.file})

	// Shown and sent back, nothing changes.
	text := d.text()
	sent := map[string]any{}
	for name, value := range values {
		sent[name] = value
	}
	encoded, err := json.Marshal(sent)
	assert.NilError(t, err)
	_, err = admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, string(encoded))})
	assert.NilError(t, err)
	assert.Equal(t, d.text(), text)
}
