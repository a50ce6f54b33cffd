package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
)

// Provider runs code under bubblewrap.
type Provider struct {
	*localfiles.Files
	*localcommands.Commands

	logger  hclog.Logger
	sandbox sandbox
	store   store
	running running
}

var (
	_ sdk.Provider       = (*Provider)(nil)
	_ sdk.Closer         = (*Provider)(nil)
	_ sdk.Interrupter    = (*Provider)(nil)
	_ sdk.Files          = (*Provider)(nil)
	_ sdk.FileSearcher   = (*Provider)(nil)
	_ sdk.FileWatcher    = (*Provider)(nil)
	_ sdk.FileModeSetter = (*Provider)(nil)
	_ sdk.Archiver       = (*Provider)(nil)
	_ sdk.Commands       = (*Provider)(nil)
)

// New is the serve.Factory.
func New(logger hclog.Logger) sdk.Provider {
	p := &Provider{logger: logger}
	p.Files, p.Commands = p.files(), p.commands()
	return p
}

// Describe implements sdk.Provider.
func (p *Provider) Describe() sdk.Description {
	languages := installed()
	return sdk.Description{
		Name:      "bubblewrap",
		Version:   "1.0.0",
		Summary:   "Local processes under bubblewrap, each instance with a directory of its own.",
		Languages: languages,
		Templates: []sdk.Template{{Name: "default", Description: "The programs below /usr of this machine.", Languages: languages}},
		Schema:    schema(),
		Ephemeral: true,
	}
}

// settings are the values of schema.
type settings struct {
	Bwrap    string   `config:"bwrap"`
	MemoryMB int64    `config:"memory_mb"`
	ReadOnly []string `config:"read_only"`
}

func schema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "bwrap", Type: sdk.TypeString, FileOnly: true, Default: "bwrap",
			Label: "bwrap", Description: "The program bwrap, version 0.8 or later: a path, or a name to look up in PATH.",
		},
		{
			Name: "memory_mb", Type: sdk.TypeInteger, Default: 1024, Min: sdk.Bound(64),
			Label: "Memory", Description: "The most memory in MiB that one process may have. All processes of an execution together are not limited.",
		},
		{
			Name: "read_only", Type: sdk.TypeList, FileOnly: true, Default: []string{},
			Label: "Directories", Description: "Absolute paths of this machine that code may read beside /usr.", Placeholder: "/opt/tools",
		},
	}
}

// Validate implements sdk.SettingsValidator.
func (p *Provider) Validate(_ context.Context, given sdk.Settings) []sdk.FieldError {
	var s settings
	if err := given.Decode(&s); err != nil {
		return []sdk.FieldError{{Message: err.Error()}}
	}
	var problems []sdk.FieldError
	for _, path := range s.ReadOnly {
		if _, err := os.Stat(path); err != nil || !filepath.IsAbs(path) {
			problems = append(problems, sdk.FieldError{Field: "read_only", Message: fmt.Sprintf("has %q, which is not the absolute path of something that exists", path)})
		}
	}
	return problems
}

// Configure implements sdk.Provider.
func (p *Provider) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	var s settings
	if err := req.Settings.Decode(&s); err != nil {
		return err
	}
	bwrap, err := exec.LookPath(s.Bwrap)
	if err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "bwrap", "there is no such program (Debian: apt install bubblewrap): %w", err)
	}
	// bwrap passes on every open file that it gets. What this process itself was
	// started with may be anything.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return sdk.Errorf(sdk.CodeInternal, "close inherited files: %w", err)
	}
	p.sandbox = sandbox{bwrap: bwrap, readOnly: s.ReadOnly, memory: uint64(s.MemoryMB) << 20}
	if err := p.sandbox.try(ctx); err != nil {
		return err
	}
	for _, dir := range req.AbandonedDirs {
		if err := removeTree(dir); err != nil {
			return sdk.Errorf(sdk.CodeInternal, "remove what an earlier broker left: %w", err)
		}
	}
	return p.store.open(req.StateDir, req.BrokerID)
}

// Health implements sdk.Provider. An empty sandbox takes a few milliseconds, and
// nothing else shows as well whether the next one will start.
func (p *Provider) Health(ctx context.Context) (sdk.Health, error) {
	err := p.sandbox.try(ctx)
	health := sdk.Health{Healthy: err == nil}
	if err != nil {
		health.Reason = err.Error()
	}
	return health, nil
}

// Create implements sdk.Provider. An instance is a directory; processes come and go
// with executions.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if !slices.ContainsFunc(p.Describe().Templates, func(t sdk.Template) bool { return t.Name == req.Template }) {
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "there is no template %q", req.Template)
	}
	if err := p.sandbox.try(ctx); err != nil {
		p.logger.Error("create", "error", err) // it may name paths of the host
		refused := sdk.Errorf(sdk.CodeUnavailable, "bubblewrap makes no sandboxes at the moment")
		refused.NoEffect = true // the broker need not look for an instance
		return sdk.Instance{}, refused
	}
	return p.store.create(req)
}

// Destroy implements sdk.Provider. Once the store has forgotten the instance no
// execution and no command begins; those that run are ended before the files go.
func (p *Provider) Destroy(ctx context.Context, instanceID string) error {
	if !idForm.MatchString(instanceID) {
		return nil
	}
	if err := p.store.forget(instanceID); err != nil {
		return err
	}
	if err := errors.Join(p.running.end(ctx, instanceID), p.EndCommands(ctx, instanceID)); err != nil {
		return err
	}
	return p.store.remove(instanceID)
}

// List implements sdk.Provider.
func (p *Provider) List(context.Context) ([]sdk.Instance, error) { return p.store.list() }

// Close implements sdk.Closer. Instances stay on the disk for the next process.
func (p *Provider) Close(ctx context.Context) error {
	return errors.Join(p.running.end(ctx, everyInstance), p.EndAllCommands(ctx))
}
