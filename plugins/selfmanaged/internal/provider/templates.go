package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/layers"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.TemplateBuilder = (*Provider)(nil)

// templater is a runtime that can start sandboxes with a root file system of their own.
type templater interface {
	StartTemplate(id string, of runsc.Template) (running, error)
}

var _ templater = runscRuntime{}

// isImage tells the name of a built template in the pool from that of one of the
// provider.
func isImage(kind string) bool { return strings.HasPrefix(kind, "sha256:") }

// templates are what was built of images.
type templates struct {
	store  *imagestore.Store // nil for a runtime that starts none
	logger hclog.Logger

	ending     context.Context // ends with close
	end        context.CancelFunc
	background sync.WaitGroup // collections
	collecting sync.Mutex
}

// template is a built one, in use by one sandbox.
type template struct {
	*imagestore.Image
	limits  confine.Limits
	release func()
}

// rootfsVersion is another one when finishRootfs does something else.
const rootfsVersion = "2"

// finishRootfs makes a root file system one with which sandboxes can be started.
func finishRootfs(tree *layers.Tree) {
	for _, dir := range runsc.MountPoints() {
		tree.PutDirectory(dir)
	}
	for path, text := range runsc.OwnFiles() {
		tree.PutFile(path, text)
	}
	tree.PutFile(strings.TrimPrefix(confine.GuestPath, "/"), "")
}

// openTemplates opens the store of templates, with a runtime that can start them.
func (p *Provider) openTemplates(ctx context.Context, req sdk.ConfigureRequest) error {
	t := &templates{logger: p.logger}
	t.ending, t.end = context.WithCancel(context.Background())
	p.templates, p.sandboxes.templates = t, t
	if _, can := p.runtime.(templater); !can {
		return nil
	}
	options := imagestore.Options{
		Dir:   cmp.Or(p.settings.TemplateDir, filepath.Join(filepath.Dir(req.StateDir), "templates")),
		Owner: req.BrokerID + "/" + req.Label, Finish: finishRootfs, Version: rootfsVersion,
		Logins: p.settings.logins(), Prepare: prepareRootfs, Hidden: buildsHide(),
	}
	var err error
	if t.store, err = imagestore.Open(options); err == nil && p.snapshots != nil {
		options.Owner += "/snapshots"
		var kept *imagestore.Store
		if kept, err = imagestore.Open(options); err == nil {
			err = p.snapshots.keepImages(ctx, t, kept)
		}
	}
	if err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "template_dir", "%w", err)
	}
	t.collect()
	return nil
}

// close returns when nothing is in progress any more.
func (t *templates) close() {
	t.end()
	t.background.Wait()
}

// collect removes in the background what nobody needs.
func (t *templates) collect() {
	if t.ending.Err() != nil {
		return
	}
	t.background.Go(func() {
		t.collecting.Lock()
		defer t.collecting.Unlock()
		if t.ending.Err() != nil {
			return
		}
		if err := t.store.Collect(); err != nil {
			t.logger.Warn("templates that nobody needs could not be removed", "error", err)
		}
	})
}

// notSupported says why there are no templates here.
func (t *templates) notSupported() error {
	if t != nil && t.store != nil {
		return nil
	}
	e := sdk.Errorf(sdk.CodeNotSupported, "templates of images need the runtime %q", runtimeRunsc)
	e.Capability = sdk.CapabilityTemplates
	return e
}

// check refuses an image of which no sandbox can be made.
func (t *templates) check(image string) error {
	if err := t.notSupported(); err != nil {
		return err
	}
	_, release, err := t.store.Use(image)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "has not been built here, or was removed")
		}
		return sdk.Errorf(sdk.CodeUnavailable, "the template could not be looked up: %w", err)
	}
	release()
	return nil
}

// use returns a template for one sandbox, which releases it.
func (t *templates) use(image string, usual confine.Limits) (*template, error) {
	found, release, err := t.store.Use(image)
	if err != nil {
		return nil, err
	}
	limits := usual
	limits.MemoryMB = cmp.Or(found.Request.MemoryMB, limits.MemoryMB)
	limits.CPUs = cmp.Or(found.Request.CPUs, limits.CPUs)
	return &template{Image: found, limits: limits, release: func() {
		release()
		t.collect()
	}}, nil
}

// BuildTemplate implements sdk.TemplateBuilder.
func (p *Provider) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	if err := p.templates.notSupported(); err != nil {
		return sdk.BuiltTemplate{}, err
	}
	if len(req.Packages) > 0 {
		if err := p.packages.Allowed(sdk.Python); err != nil {
			return sdk.BuiltTemplate{}, err
		}
	}
	// Nothing is collected while something is built.
	defer p.templates.collect()
	began := time.Now()
	image, err := p.templates.store.Build(ctx, req, imagestore.Tools{Install: p.packageLayer, Run: p.runStep}, progress)
	if err != nil {
		return sdk.BuiltTemplate{}, err
	}
	if image.BuiltAt.Before(began) {
		return image.BuiltTemplate, nil // it was tried then
	}
	if err := progress(sdk.TemplateProgress{Step: "try a sandbox"}); err != nil {
		return sdk.BuiltTemplate{}, err
	}
	if err := p.tryTemplate(ctx, image.Image); err != nil {
		return sdk.BuiltTemplate{}, errors.Join(err, p.RemoveTemplate(context.WithoutCancel(ctx), image.Image))
	}
	return image.BuiltTemplate, nil
}

// tryTemplate makes a sandbox of a template and ends it: what does not start shall be
// known when it is built.
func (p *Provider) tryTemplate(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	s, err := p.sandboxes.make(ctx, image)
	if err != nil {
		if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeInvalidRequest {
			return err
		}
		p.logger.Warn("no sandbox can be made of a template", "error", err)
		return sdk.Errorf(sdk.CodeInvalidRequest, "it was built, but no sandbox of it starts: %s", reasonOf(err))
	}
	return s.Destroy(context.WithoutCancel(ctx))
}

// reasonOf is what the operator is told of a sandbox that does not start.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.Message
	}
	return "the log of the broker says why"
}

// ListTemplates implements sdk.TemplateBuilder.
func (p *Provider) ListTemplates(context.Context) ([]sdk.BuiltTemplate, error) {
	if err := p.templates.notSupported(); err != nil {
		return nil, err
	}
	images, err := p.templates.store.List()
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the templates could not be listed: %w", err)
	}
	built := make([]sdk.BuiltTemplate, 0, len(images))
	for _, image := range images {
		built = append(built, image.BuiltTemplate)
	}
	return built, nil
}

// RemoveTemplate implements sdk.TemplateBuilder.
func (p *Provider) RemoveTemplate(ctx context.Context, image string) error {
	if err := p.templates.notSupported(); err != nil {
		return err
	}
	if err := p.templates.store.Remove(ctx, image); err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "the template could not be removed: %w", err)
	}
	p.pool.Forget(image)
	p.templates.collect()
	return nil
}

// makeOfTemplate makes a sandbox of a built template.
func (m *maker) makeOfTemplate(ctx context.Context, image string, with shared) (*sandbox, error) {
	t, err := m.templates.use(image, m.limits)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeCreateFailed, "the template is not there any more (%w)", err)
	}
	s, err := m.startTemplate(ctx, t, with)
	if err != nil {
		return nil, err
	}
	if err := s.startProgram(ctx); err != nil {
		return nil, errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// startTemplate starts a sandbox of a template, which is released with it, or with the
// failure.
func (m *maker) startTemplate(ctx context.Context, t *template, with shared) (*sandbox, error) {
	id := newID()
	raw, err := m.runtime.(templater).StartTemplate(id, runsc.Template{Rootfs: t.Rootfs(), Limits: t.limits, Mounts: with.mounts})
	if err != nil {
		t.release()
		return nil, err
	}
	s := &sandbox{running: raw, ID: id, limits: t.limits, gvisor: m.runtime.GVisor(), template: t, release: t.release, layers: &usedLayers{}}
	if s.guest, err = guestclient.New(raw.Conn()); err == nil {
		preparation := m.templatePreparation(t)
		preparation.FileSizeLimit = max(preparation.FileSizeLimit, with.largest)
		err = s.prepare(ctx, preparation)
	}
	if err != nil {
		destroyed := s.Destroy(context.WithoutCancel(ctx))
		return nil, errors.Join(m.explainStart(err, raw.Stderr()), destroyed)
	}
	return s, nil
}

// templatePreparation is preparation for a sandbox of a built template.
func (m *maker) templatePreparation(t *template) *guestv1.PrepareRequest {
	prepare := m.preparation(templateBash)
	prepare.Interpreters, prepare.Warm = map[string]string{}, []string{string(t.Languages[0])}
	for language, path := range t.Interpreters {
		prepare.Interpreters[string(language)] = path
	}
	prepare.FileSizeLimit = uint64(t.limits.WorkspaceMB) << 20
	prepare.ProcessLimit = uint64(t.limits.Processes)
	if m.runtime.GVisor() {
		prepare.MemoryLimit = t.limits.MemoryMB << 20
	}
	prepare.Packages = m.packages && t.Interpreters[sdk.Python] != ""
	return prepare
}

// keptOutput is how much is kept of what the start command of a template prints.
const keptOutput = 64 << 10

// readyTimeout bounds one run of a template's ready command.
const readyTimeout = 5 * time.Second

// readyLook is how often it is run.
const readyLook = 200 * time.Millisecond

// startProgram runs the start command of the sandbox's template, and waits until its ready
// command succeeds.
func (s *sandbox) startProgram(ctx context.Context) error {
	req := s.template.Request
	bash := s.template.Interpreters[sdk.Bash]
	if req.Start != "" {
		_, err := s.guest.Instance().StartCommand(ctx, sdk.CommandRequest{
			Argv: []string{bash, "-c", req.Start}, Env: s.environment(nil), KeepOutput: keptOutput,
		})
		if err != nil {
			return sdk.Errorf(sdk.CodeCreateFailed, "the start command of the template does not start: %w", err)
		}
	}
	look := time.NewTicker(readyLook)
	defer look.Stop()
	for req.Ready != "" {
		said := &lastOutput{}
		result, err := s.guest.Execute(ctx, sdk.ExecuteRequest{
			Language: sdk.Bash, Code: req.Ready, Timeout: readyTimeout, OutputLimit: keptOutput,
		}, s.environment(nil), said)
		if err == nil && result.Status == sdk.StatusSucceeded {
			return nil
		}
		if ctx.Err() != nil || err != nil && errors.Is(err, guestclient.ErrGone) {
			return sdk.Errorf(sdk.CodeCreateFailed, "the ready command of the template did not succeed in time; it said last: %s", said.last())
		}
		select {
		case <-look.C:
		case <-ctx.Done(): // which the next try says
		}
	}
	return nil
}

// lastOutput keeps the last line that a command has printed.
type lastOutput struct{ text []byte }

var _ sdk.Output = (*lastOutput)(nil)

// Stdout implements sdk.Output.
func (o *lastOutput) Stdout(p []byte) error { o.text = append(o.text, p...); return nil }

// Stderr implements sdk.Output.
func (o *lastOutput) Stderr(p []byte) error { return o.Stdout(p) }

// Artifact implements sdk.Output.
func (*lastOutput) Artifact(sdk.Artifact) error { return nil }

func (o *lastOutput) last() string {
	lines := strings.Split(strings.TrimSpace(string(o.text)), "\n")
	return fmt.Sprintf("%.200q", lines[len(lines)-1])
}

// notOfImages are variables that the sandbox sets, whatever an image says.
var notOfImages = []string{"HOME", "USER", "LOGNAME", "SHELL", "PWD", "HOSTNAME", "TMPDIR"}

// environment is that of the sandbox's template, and over it the given variables.
func (s *sandbox) environment(given map[string]string) map[string]string {
	if s.template == nil {
		return maps.Clone(given)
	}
	env := maps.Clone(s.template.Env)
	for _, name := range notOfImages {
		if _, own := s.template.Request.Env[name]; !own {
			delete(env, name)
		}
	}
	if path := env["PATH"]; path != "" {
		env["PATH"] = isolation.ToolsDir + ":" + path
	}
	maps.Copy(env, given)
	return env
}

// starts reports whether something runs in the sandbox from its start on.
func (s *sandbox) starts() bool { return s.template != nil && s.template.Request.Start != "" }

// runs refuses a language that the sandbox's template lacks.
func (s *sandbox) runs(language sdk.Language) error {
	if s.template == nil || s.template.Interpreters[language] != "" {
		return nil
	}
	return sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the template %q has no %s", s.template.Name, language)
}

// programs are what the sandbox's template has; ok is false for a sandbox without one.
func (s *sandbox) programs() (guestpackages.Programs, bool) {
	if s.template == nil {
		return guestpackages.Programs{}, false
	}
	return guestpackages.Programs{Interpreters: s.template.Interpreters}, true
}
