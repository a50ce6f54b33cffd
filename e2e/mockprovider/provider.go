package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// steerable are the calls that have an on_... setting.
var steerable = []string{"configure", "health", "create", "execute", "interrupt", "destroy", "list", "snapshot", "delete_snapshot", "list_snapshots"}

type provider struct {
	mode   string
	logger hclog.Logger

	mu      sync.Mutex
	config  sdk.ConfigureRequest
	actions map[string]action
	parrot  *parrot
	store   *store

	executions executions
}

var (
	_ sdk.Provider = (*provider)(nil)
	_ sdk.Closer   = (*provider)(nil)
	_ sdk.Drainer  = (*provider)(nil)
)

func newProvider(mode string) serve.Factory {
	return func(logger hclog.Logger) sdk.Provider {
		if mode == "badlog" {
			fmt.Fprintln(realStderr, `{"@message":5}`)
			fmt.Fprintln(realStderr, `{"@level":{},"@message":"a level that is no string","@timestamp":7}`)
			fmt.Fprintln(realStderr, `{"@level":"warn","@message":"line\n2026 [ERROR] forged","bad key\n":1,"nested":{"a":[1]}}`)
			fmt.Fprintln(realStderr, `{"@message":`)
		}
		return &provider{mode: mode, logger: logger, store: newStore("")}
	}
}

func (p *provider) Describe() sdk.Description {
	switch p.mode {
	case "dies":
		os.Exit(5)
	case "panics":
		panic("the mock provider was told to panic")
	}
	d := sdk.Description{
		Name:      "mock",
		Version:   "0.0.1",
		Summary:   "Does what tests tell it to; runs no code.",
		Icon:      "flask",
		Tags:      []string{"test"},
		Ephemeral: p.mode != "cloud",
		Languages: []sdk.Language{"mock", sdk.Python, sdk.JavaScript, sdk.Bash},
		Templates: []sdk.Template{
			{Name: "python", Languages: []sdk.Language{sdk.Python}},
			{Name: "nodejs", Languages: []sdk.Language{sdk.JavaScript}},
			{Name: "bash", Languages: []sdk.Language{sdk.Bash}},
			{Name: "mock", Languages: []sdk.Language{"mock"}},
		},
		Schema: sdk.Schema{
			{Name: "persist", Type: sdk.TypeBoolean, Default: false, Description: "Keep instances in the state directory."},
			{Name: "bad_starts", Type: sdk.TypeInteger, Default: int64(0), Min: sdk.Bound(0), Description: "How many processes exit in Configure."},
			{Name: "mark", Type: sdk.TypeString, Description: "What an echo tells, to know one configuration from another."},
			{Name: "secret", Type: sdk.TypeString, Secret: true, Description: "Something to keep out of logs."},
			{Name: "tokens", Type: sdk.TypeList, Secret: true, Description: "More to keep out of logs."},
			{Name: "headers", Type: sdk.TypeMap, Secret: true, Description: "And more."},
			{Name: "names", Type: sdk.TypeList, Description: "What is no secret by itself."},
			{Name: "labels", Type: sdk.TypeMap, Description: "What is no secret by itself either."},
			{Name: "login", Type: sdk.TypeBlock, Repeated: true, Max: sdk.Bound(maxLogins), Description: "Blocks with secrets.", Fields: sdk.Schema{
				{Name: "name", Type: sdk.TypeString, Description: "What an echo tells, with a sum of the password."},
				{Name: "helper", Type: sdk.TypeString, FileOnly: true, Description: "A program that is never run."},
				{Name: "limit", Type: sdk.TypeBlock, Description: "What an echo tells too.", Fields: sdk.Schema{
					{Name: "rate", Type: sdk.TypeNumber, Required: true, Max: sdk.Bound(maxRate), Description: "A number."},
				}},
				{Name: "password", Type: sdk.TypeString, Secret: true, Description: "Another to keep out of logs."},
				{Name: "notes", Type: sdk.TypeList, Description: "What is no secret by itself."},
				{Name: "inner", Type: sdk.TypeBlock, Description: "A block in a block.", Fields: sdk.Schema{
					{Name: "key", Type: sdk.TypeString, Secret: true, Description: "One more."},
				}},
			}},
			{Name: "parrot", Type: sdk.TypeList, Description: "Where all settings are repeated."},
			{Name: "warm", Type: sdk.TypeInteger, Default: int64(0), Min: sdk.Bound(0), Description: "How many instances it says that it has ready."},
			{Name: "room", Type: sdk.TypeInteger, Default: int64(0), Min: sdk.Bound(0), Description: "How many instances there is room for."},
			{Name: "unhealthy", Type: sdk.TypeString, Description: "Why Health says no."},
		},
	}
	for _, call := range steerable {
		d.Schema = append(d.Schema, sdk.Field{Name: "on_" + call, Type: sdk.TypeString, Description: "An action, as JSON, for every " + call + "."})
	}
	d.Schema = append(d.Schema, sdk.Field{Name: "on_validate", Type: sdk.TypeString, Description: "An action, as JSON, for every validation."})
	switch p.mode {
	case "badschema":
		d.Schema = append(d.Schema, sdk.Field{Name: "env", Type: sdk.TypeString})
	case "badname":
		d.Name = "../mock"
	}
	return d
}

// Bounds of settings in blocks.
const (
	maxLogins = 8
	maxRate   = 100
)

// Validate implements sdk.SettingsValidator.
func (p *provider) Validate(ctx context.Context, settings sdk.Settings) []sdk.FieldError {
	if err := newParrot(p.logger, settings).fail("validate"); err != nil {
		return []sdk.FieldError{{Field: "parrot", Message: err.Error()}, {Message: err.Error()}, {Field: err.Error(), Message: "repeats"}}
	}
	text, _ := settings["on_validate"].(string)
	act, err := parseAction(text)
	switch {
	case err != nil:
		return []sdk.FieldError{{Field: "on_validate", Message: err.Error()}}
	case act.Hang:
		<-ctx.Done()
	case act.Fail != "":
		return []sdk.FieldError{{Field: act.Field, Message: act.Message}}
	}
	return nil
}

func (p *provider) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	actions := map[string]action{}
	for _, call := range steerable {
		text, _ := req.Settings["on_"+call].(string)
		act, err := parseAction(text)
		if err != nil {
			return sdk.FieldErrorf(sdk.CodeInvalidConfig, "on_"+call, "%w", err)
		}
		actions[call] = act
	}
	p.mu.Lock()
	p.config, p.actions = req, actions
	p.parrot = newParrot(p.logger, req.Settings)
	bird := p.parrot
	p.mu.Unlock()
	bird.log()
	if err := bird.fail("configure"); err != nil {
		return err
	}

	if err := p.countStart(req); err != nil {
		return err
	}
	if persist, _ := req.Settings["persist"].(bool); persist {
		p.mu.Lock()
		p.store = newStore(filepath.Join(cmp.Or(os.Getenv("MOCK_ACCOUNT"), req.StateDir), "instances.json"))
		p.mu.Unlock()
	}
	return p.call(ctx, "configure", func() error { return nil })
}

// countStart crashes in the first bad_starts processes.
func (p *provider) countStart(req sdk.ConfigureRequest) error {
	bad, _ := req.Settings["bad_starts"].(int64)
	if bad == 0 {
		return nil
	}
	path := filepath.Join(req.StateDir, "starts")
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	starts, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err := os.WriteFile(path, []byte(strconv.FormatInt(starts+1, 10)), 0o600); err != nil {
		return err
	}
	if starts < bad {
		crash("")
	}
	return nil
}

func (p *provider) Health(ctx context.Context) (health sdk.Health, err error) {
	err = p.call(ctx, "health", func() error {
		reason, _ := p.settings()["unhealthy"].(string)
		instances := len(p.instances().list())
		health = sdk.Health{
			Healthy: reason == "",
			Reason:  reason,
			Details: map[string]string{"pid": strconv.Itoa(os.Getpid()), "instances": strconv.Itoa(instances)},
			Metrics: []sdk.Metric{{Name: "instances", Help: "Instances that there are.", Kind: sdk.MetricGauge, Value: float64(instances)}},
		}
		health.Metrics = append(health.Metrics, p.capacity(instances)...)
		p.bird().health(&health)
		return p.bird().fail("health_call")
	})
	return health, err
}

// capacity is what it says of its room, where the settings have it say something.
func (p *provider) capacity(instances int) (metrics []sdk.Metric) {
	if warm, _ := p.settings()["warm"].(int64); warm > 0 {
		metrics = append(metrics, sdk.Metric{
			Name: sdk.MetricReadySandboxes, Help: "Instances that wait to be used.", Kind: sdk.MetricGauge,
			Labels: map[string]string{sdk.MetricLabelTemplate: "python"}, Value: float64(max(0, int(warm)-instances)),
		})
	}
	if room, _ := p.settings()["room"].(int64); room > 0 {
		metrics = append(metrics, sdk.Metric{Name: sdk.MetricMaxSandboxes, Help: "Instances that there may be.", Kind: sdk.MetricGauge, Value: float64(room)})
	}
	return metrics
}

func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (instance sdk.Instance, err error) {
	err = p.call(ctx, "create", func() error {
		if err := p.bird().fail("create"); err != nil {
			return err
		}
		if err := p.awaitRoom(ctx, req); err != nil {
			return err
		}
		instance, err = p.instances().create(req)
		p.bird().instance(&instance)
		return err
	})
	switch p.action("create").Lie {
	case "bad_id":
		instance.ID = "../../etc/passwd"
	case "same_id":
		if all := p.instances().list(); len(all) > 0 {
			instance.ID = all[0].ID
		}
	}
	return instance, err
}

// queueTimeout is how long a creation waits for room by itself.
const queueTimeout = 2 * time.Minute

// awaitRoom waits until there are less instances than the setting room allows.
func (p *provider) awaitRoom(ctx context.Context, req sdk.CreateRequest) error {
	room, _ := p.settings()["room"].(int64)
	most, late := queueTimeout, sdk.CodeCreateFailed
	if req.MaxQueue != nil && *req.MaxQueue < most {
		most, late = *req.MaxQueue, sdk.CodeQuotaExceeded
	}
	over, look := time.After(most), time.NewTicker(5*time.Millisecond)
	defer look.Stop()
	for room > 0 && len(p.instances().list()) >= int(room) {
		select {
		case <-look.C:
		case <-over:
			return sdk.Errorf(late, "there was no room within %s", most)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *provider) Destroy(ctx context.Context, instanceID string) error {
	return p.call(ctx, "destroy", func() error { return p.instances().destroy(instanceID) })
}

func (p *provider) List(ctx context.Context) (list []sdk.Instance, err error) {
	err = p.call(ctx, "list", func() error {
		list = p.instances().list()
		for i := range list {
			p.bird().instance(&list[i])
		}
		return nil
	})
	return list, err
}

// Drain says so in the log.
func (p *provider) Drain(context.Context) error {
	p.logger.Info("drained")
	return nil
}

// Close leaves a file that tests can look for.
func (p *provider) Close(context.Context) error {
	return os.WriteFile(filepath.Join(p.stateDir(), "closed"), nil, 0o600)
}

// call does one call with the action that is set for its name.
func (p *provider) call(ctx context.Context, name string, effect func() error) error {
	act := p.action(name)
	if err := p.before(ctx, act); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	act.after()
	return nil
}

// action returns what a call is to do: as in actions.json, else as set.
func (p *provider) action(name string) action {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := os.ReadFile(filepath.Join(p.config.StateDir, "actions.json"))
	if err != nil || p.config.StateDir == "" {
		return p.actions[name]
	}
	override := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &override); err != nil {
		p.logger.Error("actions.json", "error", err)
	}
	if own, ok := override[name]; ok {
		act, err := parseAction(string(own))
		if err != nil {
			p.logger.Error("actions.json", "error", err)
		}
		return act
	}
	return p.actions[name]
}

func (p *provider) settings() sdk.Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.Settings
}

func (p *provider) bird() *parrot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parrot
}

func (p *provider) stateDir() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config.StateDir
}

func (p *provider) instances() *store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.store
}
