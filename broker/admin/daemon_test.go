package admin_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sealingKey is a key of tests.
const sealingKey = "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

// daemon is a broker whose plugins all have the same schema. It takes what it is
// given, unless Refuse says otherwise.
type daemon struct {
	t    *testing.T
	file string
	// refuse is the error of Apply before it saves.
	refuse error
	// try answers Try.
	try func(settings sdk.Settings) admin.Trial

	mu      sync.Mutex
	inForce admin.Generation
	applied []admin.Reload
	texts   admin.Texts
}

var _ admin.Daemon = (*daemon)(nil)

func schema() sdk.Schema {
	return sdk.Schema{
		{Name: "api_key", Type: sdk.TypeString, Secret: true},
		{Name: "headers", Type: sdk.TypeMap, Secret: true},
		{Name: "endpoint", Type: sdk.TypeString, Default: "https://example.com"},
		{Name: "timeout", Type: sdk.TypeDuration, Default: 30.0, Max: sdk.Bound(300)},
		{Name: "size", Type: sdk.TypeInteger, Default: 4.0, Min: sdk.Bound(1)},
		{Name: "share", Type: sdk.TypeNumber},
		{Name: "on", Type: sdk.TypeBoolean},
		{Name: "zones", Type: sdk.TypeList},
		{Name: "ports", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeInteger}},
		{Name: "shares", Type: sdk.TypeList, Items: &sdk.Field{Type: sdk.TypeNumber, Max: sdk.Bound(1)}},
		{Name: "labels", Type: sdk.TypeMap},
		{Name: "auth", Type: sdk.TypeBlock, Fields: sdk.Schema{
			{Name: "user", Type: sdk.TypeString, Default: "me"},
			{Name: "password", Type: sdk.TypeString, Secret: true},
			{Name: "wait", Type: sdk.TypeDuration},
			{Name: "helper", Type: sdk.TypeString, FileOnly: true},
			{Name: "second", Type: sdk.TypeBlock, Fields: sdk.Schema{{Name: "code", Type: sdk.TypeString, Required: true}}},
		}},
		{Name: "rules", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(5), Fields: sdk.Schema{
			{Name: "host", Type: sdk.TypeString},
			{Name: "password", Type: sdk.TypeString, Secret: true},
			{Name: "pin", Type: sdk.TypeInteger, Secret: true},
			{Name: "tool", Type: sdk.TypeString, FileOnly: true},
			{Name: "limit", Type: sdk.TypeBlock, Fields: sdk.Schema{{Name: "rate", Type: sdk.TypeNumber, Max: sdk.Bound(100)}}},
			{Name: "header", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(3), Fields: sdk.Schema{
				{Name: "name", Type: sdk.TypeString, Required: true},
				{Name: "value", Type: sdk.TypeString, Secret: true},
			}},
		}},
		{Name: "program", Type: sdk.TypeString, Default: "/usr/bin/true", FileOnly: true},
		{Name: "directory", Type: sdk.TypeString, FileOnly: true},
	}
}

const tenants = "tenant \"t\" { token_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"] }\n"

// newDaemon has a configuration in force, of one file.
func newDaemon(t *testing.T, text string) *daemon {
	t.Helper()
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "keys"), []byte(sealingKey+"\n"), 0o600))
	d := &daemon{t: t, file: filepath.Join(dir, "sandbox.hcl")}
	assert.NilError(t, os.WriteFile(d.file, []byte(text+tenants), 0o600))
	cfg, diags := config.Load(d.file)
	assert.Assert(t, !diags.HasErrors(), "%v", diags)
	d.accept(cfg)
	return d
}

func (d *daemon) accept(cfg *config.Config) {
	g := admin.Generation{Number: d.inForce.Number + 1, Config: cfg}
	for _, block := range cfg.Providers {
		settings, diags := block.Settings(schema())
		assert.Check(d.t, !diags.HasErrors(), "%v", diags)
		g.Providers = append(g.Providers, admin.Configured{Label: block.Label, Schema: schema(), Settings: settings})
	}
	d.inForce = g
	d.texts.Keep(g.Number, cfg)
}

// text is the file without the tenants.
func (d *daemon) text() string {
	d.t.Helper()
	text, err := os.ReadFile(d.file)
	assert.NilError(d.t, err)
	return strings.Replace(string(text), tenants, "", 1)
}

func (d *daemon) File() string { return d.file }

func (d *daemon) InForce() admin.Generation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inForce
}

func (d *daemon) Apply(_ context.Context, begun admin.Reload, draft admin.Draft) (admin.Reload, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return begun, d.refuse
	}
	if err := draft.Save(); err != nil {
		return begun, err
	}
	cfg := draft.Config()
	d.accept(cfg)
	begun.Generation, begun.Applied, begun.Revision = d.inForce.Number, true, cfg.Revision
	d.applied = append(d.applied, begun)
	return begun, nil
}

func (d *daemon) Reread(context.Context) (admin.Reload, error) { return admin.Reload{}, nil }

func (d *daemon) DryRun(context.Context) (admin.Reload, error) {
	return admin.Reload{Trigger: admin.TriggerAPI}, nil
}

func (d *daemon) Preview(_ context.Context, begun admin.Reload, cfg *config.Config) (admin.Reload, error) {
	begun.Applied, begun.Revision = cfg.Revision != d.InForce().Config.Revision, cfg.Revision
	return begun, d.refuse
}

func (d *daemon) Texts(generation int) []admin.FileText { return d.texts.Of(generation) }

func (d *daemon) Describe(_ context.Context, _ *config.Config, block *config.Provider) (sdk.Description, error) {
	if block.Label == "missing" {
		return sdk.Description{}, errors.New("there is no plugin missing")
	}
	return sdk.Description{Schema: schema()}, nil
}

func (d *daemon) Try(_ context.Context, _ *config.Config, block *config.Provider) (admin.Trial, error) {
	settings, diags := block.Settings(schema())
	if diags.HasErrors() {
		return admin.Trial{}, diags
	}
	return d.try(settings), nil
}

func (d *daemon) Reloads() []admin.Reload { return d.applied }
func (d *daemon) Status() admin.Status    { return admin.Status{} }

// write changes the file as a person does, with the tenants behind it.
func (d *daemon) write(text string) {
	d.t.Helper()
	assert.NilError(d.t, os.WriteFile(d.file, []byte(text+tenants), 0o600))
}

// include writes another file of the configuration.
func (d *daemon) include(name, text string) {
	d.t.Helper()
	path := filepath.Join(filepath.Dir(d.file), name)
	assert.NilError(d.t, os.MkdirAll(filepath.Dir(path), 0o700))
	assert.NilError(d.t, os.WriteFile(path, []byte(text), 0o600))
}
