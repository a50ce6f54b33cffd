package templates_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/templates"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// contract is a provider of which a Builder calls no method but those below.
type contract = sdk.Provider

// provider builds templates in memory: a source stands for what a tag leads to.
type provider struct {
	contract
	label string

	mu       sync.Mutex
	leads    string // what every tag leads to now
	failure  error
	hold     chan struct{} // builds wait for it; nil for not
	built    map[string]sdk.BuiltTemplate
	requests []sdk.BuildTemplateRequest
}

func newProvider(label string) *provider {
	return &provider{label: label, leads: sum("first"), built: map[string]sdk.BuiltTemplate{}}
}

func sum(text string) string { return fmt.Sprintf("sha256:%064x", text) }

func (p *provider) Label() string { return p.label }

func (p *provider) Description() sdk.Description {
	return sdk.Description{Name: p.label, Capabilities: []sdk.Capability{sdk.CapabilityTemplates}}
}

func (p *provider) Provider(context.Context) (sdk.Provider, error) { return p, nil }

func (p *provider) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	p.mu.Lock()
	hold, failure, source := p.hold, p.failure, p.leads
	p.requests = append(p.requests, req)
	p.mu.Unlock()
	if err := progress(sdk.TemplateProgress{Step: "begin"}); err != nil {
		return sdk.BuiltTemplate{}, err
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return sdk.BuiltTemplate{}, ctx.Err()
		}
	}
	if failure != nil {
		return sdk.BuiltTemplate{}, failure
	}
	if req.Source != "" {
		source = req.Source
	}
	t := sdk.BuiltTemplate{Name: req.Name, Source: source, Image: sum(req.Name + source[len(source)-6:] + strings.Join(req.Packages, "")), Languages: []sdk.Language{sdk.Bash}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.built[t.Image] = t
	return t, nil
}

func (p *provider) ListTemplates(context.Context) ([]sdk.BuiltTemplate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.built)), nil
}

func (p *provider) RemoveTemplate(_ context.Context, image string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.built, image)
	return nil
}

func (p *provider) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) there() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.built))
}

// scene is a builder over a state file.
type scene struct {
	*templates.Builder
	end func()
}

func newScene(t *testing.T, dir string) scene {
	t.Helper()
	s, err := store.Open(filepath.Join(dir, "state.db"), store.Options{})
	assert.NilError(t, err)
	life, end := context.WithCancel(context.Background())
	tasks := background.NewGroup(hclog.NewNullLogger())
	b, err := templates.New(templates.Options{
		Pins: templates.NewStorePins(s, hclog.NewNullLogger()), Logger: hclog.NewNullLogger(), Life: life, Tasks: tasks,
	})
	assert.NilError(t, err)
	return scene{b, sync.OnceFunc(func() {
		end()
		tasks.Wait()
		assert.NilError(t, s.Close())
	})}
}

func (s scene) status(name string) templates.Status {
	for _, status := range s.Statuses("") {
		if status.Name == name {
			return status
		}
	}
	return templates.Status{}
}

// until waits for what builds come to.
func until(t *testing.T, what func() bool) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if what() {
			return poll.Success()
		}
		return poll.Continue("not yet")
	}, poll.WithTimeout(2*time.Minute))
}

func (s scene) ready(t *testing.T, name string) templates.Status {
	t.Helper()
	until(t, func() bool { return s.status(name).State == templates.Ready })
	return s.status(name)
}

func TestWhatAnImageIsStaysUntilSomebodyAsks(t *testing.T) {
	dir, p := t.TempDir(), newProvider("one")
	s := newScene(t, dir)
	defer func() { s.end() }()
	spec := []config.Template{{Name: "data", From: "x:1"}}
	s.Follow(spec, []templates.Provider{p})
	assert.Equal(t, s.ready(t, "data").Built.Source, sum("first"))

	// The tag leads elsewhere by now: not for another provider, nor after a restart.
	p.change(func() { p.leads = sum("second") })
	other := newProvider("two")
	other.leads = sum("second")
	s.Follow(spec, []templates.Provider{p, other})
	until(t, func() bool { _, known, err := s.Find("two", "data"); return known && err == nil })
	built, _, _ := s.Find("two", "data")
	assert.Equal(t, built.Source, sum("first"))
	s.end()
	s = newScene(t, dir)
	s.Follow(spec, []templates.Provider{p})
	assert.Equal(t, s.ready(t, "data").Built.Source, sum("first"))

	assert.NilError(t, s.Build(t.Context(), "data"))
	until(t, func() bool { return s.status("data").Built.Source == sum("second") })
	until(t, func() bool { return len(p.there()) == 1 }) // what was built before is removed
	assert.Equal(t, sdk.CodeOf(s.Build(t.Context(), "none")), sdk.CodeNotFound)

	// Another tag is another image.
	s.Follow([]config.Template{{Name: "data", From: "x:2"}}, []templates.Provider{p})
	until(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.requests[len(p.requests)-1].From == "x:2" && p.requests[len(p.requests)-1].Source == ""
	})
}

func TestWhatWasBuiltServesWhileALaterBuildGoesOnOrFails(t *testing.T) {
	p := newProvider("one")
	s := newScene(t, t.TempDir())
	defer s.end()
	spec := []config.Template{{Name: "data", From: "x:1"}}
	p.change(func() { p.hold = make(chan struct{}) })
	s.Follow(spec, []templates.Provider{p})
	_, known, err := s.Find("one", "data")
	assert.Assert(t, known)
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok && e.Code == sdk.CodeUnavailable && e.RetryAfter > 0, "%v", err)
	until(t, func() bool { return len(s.status("data").Steps) == 1 })
	close(p.hold)
	first := s.ready(t, "data").Built.Image

	p.change(func() { p.hold, p.failure = nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "is gone") })
	assert.NilError(t, s.Build(t.Context(), "data"))
	until(t, func() bool { return s.status("data").State == templates.Failed })
	status := s.status("data")
	assert.Equal(t, status.Code, sdk.CodeInvalidRequest)
	assert.Equal(t, status.Reason, "from is gone")
	built, _, err := s.Find("one", "data")
	assert.NilError(t, err)
	assert.Equal(t, built.Image, first)

	// A configuration that is read again tries what has failed again, and nothing else.
	p.change(func() { p.failure = nil })
	s.Follow(spec, []templates.Provider{p})
	s.ready(t, "data")
	asked := len(p.requests)
	s.Follow(spec, []templates.Provider{p})
	assert.Equal(t, len(p.requests), asked)
}

func TestWhatFailsInPassingIsTriedAgain(t *testing.T) {
	p := newProvider("one")
	p.failure = sdk.Errorf(sdk.CodeConnectionFailed, "the registry is away")
	s := newScene(t, t.TempDir())
	defer s.end()
	s.Follow([]config.Template{{Name: "data", From: "x:1"}}, []templates.Provider{p})
	until(t, func() bool { return s.status("data").State == templates.Failed })
	_, known, err := s.Find("one", "data")
	assert.Assert(t, known)
	assert.ErrorContains(t, err, "could not be built")
	p.change(func() { p.failure = nil })
	s.ready(t, "data")
}

func TestTemplatesAreForTheirTenantsAndProviders(t *testing.T) {
	one, two := newProvider("one"), newProvider("two")
	s := newScene(t, t.TempDir())
	defer s.end()
	s.Follow([]config.Template{
		{Name: "all", From: "x:1"}, {Name: "theirs", From: "x:1", Tenants: []string{"acme"}, Providers: []string{"two"}},
	}, []templates.Provider{one, two})
	s.ready(t, "theirs")
	names := func(tenant string) (list []string) {
		for _, status := range s.Statuses(tenant) {
			list = append(list, status.Name+" "+status.Provider)
		}
		return list
	}
	assert.DeepEqual(t, names(""), []string{"all one", "all two", "theirs two"})
	assert.DeepEqual(t, names("other"), []string{"all one", "all two"})
	assert.Check(t, is.Len(names("acme"), 3))
	_, known, err := s.Find("one", "theirs")
	assert.Assert(t, !known && err == nil)

	// What is not in the configuration any more is removed.
	s.Follow(nil, []templates.Provider{one, two})
	until(t, func() bool { return len(one.there()) == 0 && len(two.there()) == 0 })
	assert.Check(t, is.Len(names(""), 0))
}
