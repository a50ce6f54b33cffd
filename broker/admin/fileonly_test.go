package admin_test

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Who may abuse it: whoever has an administrator's token, and wants the broker's user,
// or a provider's key, by naming a program, a path or an address.
func TestWhatNamesProgramsAndPathsIsChangedInTheFileAlone(t *testing.T) {
	t.Setenv("OWN_PROGRAM", "/opt/own")
	blocks := map[string]string{
		"not given":       "provider \"p\" {\n}\n",
		"given":           "provider \"p\" {\n  program = \"/opt/own\"\n}\n",
		"computed":        "provider \"p\" {\n  program = env(\"OWN_PROGRAM\")\n}\n",
		"with a mistake":  "provider \"p\" {\n  program = \"/opt/own\"\n}\n",
		"a new provider":  "provider \"q\" {\n}\n",
		"of another type": "provider \"p\" {\n  program = \"/opt/own\"\n}\n",
	}
	for name, block := range blocks {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, block)
			before := d.text()
			d.try = func(sdk.Settings) admin.Trial {
				t.Error("it was tried")
				return admin.Trial{}
			}
			c := admin.NewConfigurator(d)
			settings := map[string]any{"program": "/tmp/mine", "directory": "/"}
			switch name {
			case "with a mistake":
				settings["size"] = "none"
			case "of another type":
				settings["program"] = []any{"/tmp/mine"}
			}
			for doing, change := range map[string]func() error{
				"save": func() error {
					_, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: settings})
					return err
				},
				"save and test": func() error {
					_, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: settings, Test: true})
					return err
				},
				"test": func() error {
					_, err := c.Test(t.Context(), admin.ProviderSettings{Provider: "p", Settings: settings})
					return err
				},
			} {
				err := change()
				wrong, ok := errors.AsType[admin.FieldErrors](err)
				assert.Assert(t, ok, "%s: %v", doing, err)
				assert.Equal(t, wrong[0].Field, "directory", doing)
				assert.Assert(t, is.Contains(wrong[0].Message, "changed in the file"), doing)
				assert.Equal(t, wrong[1].Field, "program", doing)
				assert.Equal(t, d.text(), before, doing)
			}
		})
	}
	for _, name := range []string{"given", "computed"} {
		t.Run(name+" and to be removed", func(t *testing.T) {
			d := newDaemon(t, blocks[name])
			_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: map[string]any{"program": nil}})
			assert.ErrorContains(t, err, "changed in the file")
			assert.Equal(t, d.text(), blocks[name])
		})
	}
}

// A page sends back all that it was shown.
func TestWhatIsTheFilesMayBeSentBackAsItIs(t *testing.T) {
	t.Setenv("OWN_PROGRAM", "/opt/own/program")
	for name, test := range map[string]struct{ block, sent string }{
		"the default":     {"provider \"p\" {\n}\n", "/usr/bin/true"},
		"a value":         {"provider \"p\" {\n  program = \"/opt/own\"\n}\n", "/opt/own"},
		"what is masked":  {"provider \"p\" {\n  program = env(\"OWN_PROGRAM\")\n}\n", "****gram"},
		"what it is, too": {"provider \"p\" {\n  program = env(\"OWN_PROGRAM\")\n}\n", "/opt/own/program"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, test.block)
			d.try = func(settings sdk.Settings) admin.Trial { return admin.Trial{Success: settings["size"] == int64(4)} }
			c := admin.NewConfigurator(d)
			sent := map[string]any{"program": test.sent, "directory": nil}
			_, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: sent, Test: true})
			assert.NilError(t, err)
			trial, err := c.Test(t.Context(), admin.ProviderSettings{Provider: "p", Settings: sent})
			assert.NilError(t, err)
			assert.Assert(t, trial.Success)
			assert.Equal(t, d.text(), test.block)
		})
	}
}

// Another program in the file has other settings of its own.
func TestTheProgramInTheFileSaysWhatIsTheFiles(t *testing.T) {
	d := newDaemon(t, "provider \"p\" {\n}\n")
	d.inForce.Providers[0].Schema = sdk.Schema{{Name: "program", Type: sdk.TypeString}}
	d.write("provider \"p\" {\n  plugin = \"other\"\n}\n")
	_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: map[string]any{"program": "/tmp/mine"}})
	assert.ErrorContains(t, err, "changed in the file")
}

// Functions of the file read variables and files of the broker's user.
func TestNoFunctionIsWrittenIntoTheFile(t *testing.T) {
	t.Setenv("OWN_PROGRAM", "what-nobody-sees")
	const call = `${env("OWN_PROGRAM")}`
	d := newDaemon(t, "provider \"p\" {\n}\n")
	var tried sdk.Settings
	d.try = func(settings sdk.Settings) admin.Trial {
		tried = settings
		return admin.Trial{Success: true}
	}
	_, err := admin.NewConfigurator(d).SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Test: true, Settings: map[string]any{
		"endpoint": call, "zones": []any{call, "%{ if true }x%{ endif }", "\"\nprogram = env(\"OWN_PROGRAM\")\n"},
		"labels": map[string]any{call: call, "a\" = env(\"OWN_PROGRAM\"), \"b": "\"}\nprogram = 1"},
	}})
	assert.NilError(t, err)
	assert.Equal(t, tried["endpoint"], call)
	assert.DeepEqual(t, tried["labels"], map[string]string{call: call, "a\" = env(\"OWN_PROGRAM\"), \"b": "\"}\nprogram = 1"})
	assert.DeepEqual(t, tried["zones"], []string{call, "%{ if true }x%{ endif }", "\"\nprogram = env(\"OWN_PROGRAM\")\n"})
	assert.Equal(t, tried["program"], "/usr/bin/true")
}
