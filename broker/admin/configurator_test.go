package admin_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const one = "provider \"p\" {\n  size = 4 # enough\n}\n"

func TestAChangeIsMadeToTheRevisionThatWasSeen(t *testing.T) {
	d := newDaemon(t, one)
	c := admin.NewConfigurator(d)
	first := d.InForce().Config.Revision
	_, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 5}`), IfMatch: []string{"another", first}})
	assert.NilError(t, err)
	assert.Equal(t, d.text(), "provider \"p\" {\n  size = 5 # enough\n}\n")
	assert.Equal(t, d.applied[0].Operation, `provider "p"`)
	for name, ifMatch := range map[string][]string{"an earlier one": {first}, "no one's": {"-"}} {
		_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 6}`), IfMatch: ifMatch})
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeConflict, name)
		_, err = c.Activate(t.Context(), admin.Activation{Provider: "p", IfMatch: ifMatch})
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeConflict, name)
	}
	// Changed between reading and writing.
	_, err = c.Change(t.Context(), admin.Edit{Make: func(document *edit.Document) error {
		assert.NilError(t, os.WriteFile(d.file, []byte(one+tenants+"# by hand\n"), 0o600))
		value, err := edit.Literal(7)
		assert.NilError(t, err)
		return document.Set(edit.Provider("p"), "size", value)
	}})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConflict)
	assert.Equal(t, d.text(), one+"# by hand\n")
	assert.Equal(t, d.InForce().Number, 2)
	assert.Assert(t, c.Configuration().Differs)
}

func TestWhatIsRefusedIsNotWritten(t *testing.T) {
	d := newDaemon(t, one)
	c := admin.NewConfigurator(d)
	d.refuse = config.Diagnostics{{Severity: config.SeverityError, Summary: "Not well"}}
	_, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 5}`)})
	assert.Equal(t, err.Error(), d.refuse.Error())
	assert.Equal(t, d.text(), one)

	d.refuse = nil
	// What comes out has mistakes that no field is to blame for.
	_, err = c.Activate(t.Context(), admin.Activation{Provider: "p", Fallback: []string{"nobody"}})
	diags, ok := errors.AsType[config.Diagnostics](err)
	assert.Assert(t, ok && diags[0].Summary == "Unknown provider", "%v", err)
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "Bad Name"})
	diags, ok = errors.AsType[config.Diagnostics](err)
	assert.Assert(t, ok && diags[0].Summary == "Invalid name", "%v", err)
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "missing"})
	assert.ErrorContains(t, err, "there is no plugin missing")
	assert.Equal(t, d.text(), one)

	assert.NilError(t, os.Chmod(d.file, 0o400))
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 5}`)})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotAllowed)
	assert.Assert(t, is.Contains(c.Configuration().ReadOnly, "write-protected"))
	assert.NilError(t, os.Chmod(d.file, 0o600))
	assert.NilError(t, os.WriteFile(d.file, []byte("provider \"p\" {{\n"), 0o600))
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p"})
	_, ok = errors.AsType[config.Diagnostics](err)
	assert.Assert(t, ok, "%v", err)
	assert.Assert(t, is.Contains(c.Configuration().ReadOnly, "the files have mistakes"))
	assert.Equal(t, d.InForce().Number, 1)
}

func TestABrokerWithoutFilesDoesNotChange(t *testing.T) {
	d := newDaemon(t, one)
	d.file = ""
	c := admin.NewConfigurator(d)
	for name, change := range map[string]func() error{
		"settings": func() error { _, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p"}); return err },
		"active":   func() error { _, err := c.Activate(t.Context(), admin.Activation{Provider: "p"}); return err },
		"test":     func() error { _, err := c.Test(t.Context(), admin.ProviderSettings{Provider: "p"}); return err },
		"reload":   func() error { _, err := c.Reload(t.Context(), false); return err },
		"dry run":  func() error { _, err := c.Reload(t.Context(), true); return err },
	} {
		assert.Equal(t, sdk.CodeOf(change()), sdk.CodeNotAllowed, name)
	}
	assert.Assert(t, is.Contains(c.Configuration().ReadOnly, "cannot change while it runs"))
}

func TestActiveAndFallback(t *testing.T) {
	const three = "provider \"a\" {}\nprovider \"b\" {}\nprovider \"c\" {}\n"
	for name, test := range map[string]struct {
		before, provider string
		fallback         []string
		after            string
	}{
		"another":                         {three + "providers {\n  active = \"a\" # first\n}\n", "b", nil, three + "providers {\n  active = \"b\" # first\n}\n"},
		"the same":                        {three + "providers { active = \"a\" }\n", "a", nil, three + "providers { active = \"a\" }\n"},
		"one of the fallback":             {three + "providers {\n  active   = \"a\"\n  fallback = [\"b\", \"c\"]\n}\n", "b", nil, three + "providers {\n  active   = \"b\"\n  fallback = [\"b\", \"c\"]\n}\n"},
		"the only one of it":              {three + "providers {\n  active   = \"a\"\n  fallback = [\"b\"]\n}\n", "b", nil, three + "providers {\n  active   = \"b\"\n  fallback = [\"b\"]\n}\n"},
		"none, where it was the only one": {three + "providers {\n  active   = \"b\"\n  fallback = [\"b\"]\n}\n", "b", []string{}, three + "providers {\n  active = \"b\"\n}\n"},
		"both":                            {three + "providers {\n  active = \"a\"\n}\n", "c", []string{"a", "b"}, three + "providers {\n  active   = \"c\"\n  fallback = [\"a\", \"b\"]\n}\n"},
		"no fallback any more":            {three + "providers {\n  active = \"a\"\n  fallback = [\"b\"]\n}\n", "a", []string{}, three + "providers {\n  active = \"a\"\n}\n"},
		"where nobody need be chosen":     {one, "p", nil, one},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, test.before)
			_, err := admin.NewConfigurator(d).Activate(t.Context(), admin.Activation{Provider: test.provider, Fallback: test.fallback})
			assert.NilError(t, err)
			assert.Equal(t, d.text(), test.after)
			assert.Equal(t, d.InForce().Config.ActiveProvider, test.provider)
		})
	}
	d := newDaemon(t, one)
	_, err := admin.NewConfigurator(d).Activate(t.Context(), admin.Activation{Provider: "nobody"})
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok && e.Code == sdk.CodeInvalidConfig && e.Field == "provider", "%v", err)
	_, err = admin.NewConfigurator(newDaemon(t, one)).Activate(t.Context(), admin.Activation{Provider: "p", Fallback: []string{"p"}})
	wrong, ok := errors.AsType[admin.FieldErrors](err)
	assert.Assert(t, ok && wrong[0].Field == "fallback", "%v", err)
}

// There and back again, the file is what it was.
func TestAnotherActiveProviderAndBackChangesNothingElse(t *testing.T) {
	t.Setenv("FALLBACK_LABEL", "b")
	for name, fallback := range map[string]string{
		"one": `["b"]`, "several": "[\n    \"c\", # cheap\n    \"b\",\n  ]", "computed": `[env("FALLBACK_LABEL"), "c"]`, "none": `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			text := "# Why: see the wiki.\nproviders {\n  fallback = " + fallback + " # in turn\n  active = \"a\" # since March\n}\nprovider \"a\" {}\nprovider \"b\" {}\nprovider \"c\" {}\n"
			d := newDaemon(t, text)
			before := d.InForce().Config.FallbackProviders
			c := admin.NewConfigurator(d)
			outcome, err := c.Activate(t.Context(), admin.Activation{Provider: "b"})
			assert.NilError(t, err)
			assert.Check(t, !slices.Contains(d.InForce().Config.FallbackProviders, "b"))
			assert.Check(t, is.Equal(len(outcome.Reload.Diagnostics) == 1, slices.Contains(before, "b")), "it says so: %v", outcome.Reload.Diagnostics)
			_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "a", Activate: true})
			assert.NilError(t, err)
			assert.Equal(t, d.text(), text)
			assert.DeepEqual(t, d.InForce().Config.FallbackProviders, before)
		})
	}
}

func TestAProviderIsAddedBesideTheActiveOne(t *testing.T) {
	d := newDaemon(t, one)
	c := admin.NewConfigurator(d)
	_, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "q", Settings: given(t, `{"size": 2}`)})
	assert.NilError(t, err)
	assert.Equal(t, d.InForce().Config.ActiveProvider, "p")
	assert.Assert(t, is.Contains(d.text(), "provider \"q\" {\n  size = 2\n}\n"))
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "r", Activate: true})
	assert.NilError(t, err)
	assert.Equal(t, d.InForce().Config.ActiveProvider, "r")
}

func TestATrialSeesTheSettingsAndWritesNothing(t *testing.T) {
	d := newDaemon(t, "provider \"p\" {\n  api_key = \"present-secret\"\n  size = 4\n}\n")
	before := d.text()
	var tried sdk.Settings
	d.try = func(settings sdk.Settings) admin.Trial {
		tried = settings
		return admin.Trial{Success: settings["api_key"] == "present-secret", Message: "said", Latency: time.Second, Code: sdk.CodeConnectionFailed}
	}
	c := admin.NewConfigurator(d)
	trial, err := c.Test(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 9, "api_key": "****cret"}`)})
	assert.NilError(t, err)
	assert.Assert(t, trial.Success)
	assert.Equal(t, tried["size"], int64(9))
	trial, err = c.Test(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"api_key": "another-secret"}`)})
	assert.NilError(t, err)
	assert.Assert(t, !trial.Success && tried["api_key"] == "another-secret")
	_, err = c.Test(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 0}`)})
	_, ok := errors.AsType[admin.FieldErrors](err)
	assert.Assert(t, ok, "%v", err)
	assert.Equal(t, d.text(), before)

	// Saved with a trial: only what works.
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"api_key": "another-secret"}`), Test: true})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed)
	assert.Equal(t, d.text(), before)
	outcome, err := c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 5}`), Test: true})
	assert.NilError(t, err)
	assert.Equal(t, outcome.Trial.Latency, time.Second)
	assert.Assert(t, is.Contains(d.text(), "size = 5"))
	d.try = func(sdk.Settings) admin.Trial {
		return admin.Trial{Message: "is a bad key", Code: sdk.CodeInvalidConfig, Field: "api_key"}
	}
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Test: true})
	assert.DeepEqual(t, err, admin.FieldErrors{{Field: "api_key", Message: "is a bad key"}})
}

func TestOnlyTwoAreTriedAtOnce(t *testing.T) {
	d := newDaemon(t, one)
	begun, finish := make(chan struct{}), make(chan struct{})
	d.try = func(sdk.Settings) admin.Trial {
		begun <- struct{}{}
		<-finish
		return admin.Trial{Success: true}
	}
	c := admin.NewConfigurator(d)
	var trials sync.WaitGroup
	for range 2 {
		trials.Go(func() {
			_, err := c.Test(t.Context(), admin.ProviderSettings{Provider: "p"})
			assert.Check(t, err)
		})
		<-begun
	}
	_, err := c.Test(t.Context(), admin.ProviderSettings{Provider: "p"})
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok && e.Code == sdk.CodeQuotaExceeded && e.RetryAfter > 0, "%v", err)
	_, err = c.SaveProvider(t.Context(), admin.ProviderSettings{Provider: "p", Test: true})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
	_, err = c.PreviewProvider(t.Context(), admin.ProviderSettings{Provider: "p", Settings: given(t, `{"size": 6}`)})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded, "a dry run starts it too")
	close(finish)
	trials.Wait()
	go func() { <-begun }()
	_, err = c.Test(t.Context(), admin.ProviderSettings{Provider: "p"})
	assert.NilError(t, err)
}

func TestTheHistoryIsBoundedAndCounts(t *testing.T) {
	var h admin.History
	wrong := config.Diagnostics{{Severity: config.SeverityError}}
	h.Note(admin.Reload{Trigger: admin.TriggerStart, Generation: 1, Applied: true})
	assert.DeepEqual(t, h.Totals(), admin.Totals{})
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	h.Add(admin.Reload{At: at, Applied: true, Generation: 2})
	h.Add(admin.Reload{At: at.Add(time.Minute), Operation: "x", Diagnostics: wrong})
	assert.DeepEqual(t, h.Totals(), admin.Totals{Applied: 1, Refused: 1, LastAt: at, LastOK: true})
	h.Add(admin.Reload{At: at.Add(time.Hour), Diagnostics: wrong})
	assert.DeepEqual(t, h.Totals(), admin.Totals{Applied: 1, Refused: 2, LastAt: at.Add(time.Hour)})
	var results []string
	for _, r := range h.Reloads() {
		results = append(results, r.Result())
	}
	assert.Equal(t, strings.Join(results, " "), "refused refused applied applied")
	for range 100 {
		h.Add(admin.Reload{})
	}
	assert.Equal(t, len(h.Reloads()), 50)
	assert.Equal(t, h.Reloads()[0].Result(), "unchanged")
}
