package provider

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/packagelayers"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// packageLayersDir is where sandboxes see all layers. They can read one that they are told
// of, and list none.
const packageLayersDir = "/opt/sandbox/packages"

const (
	// layersAtOnce is how many layers are built at once; who asks for a further one gets a
	// plain installation.
	layersAtOnce = 2
	// keepTimeout bounds what it takes to keep a layer that was installed.
	keepTimeout = 2 * time.Minute
	// collectInterval is how often layers are looked for that are too old.
	collectInterval = time.Hour
)

// layered is a runtime whose sandboxes can all see a directory of this machine.
type layered interface {
	// Programs identifies the programs with these paths, and what is beside them.
	Programs(paths []string) string
}

var _ layered = runscRuntime{}

// packageLayers are what was installed for sets of packages, so that it is installed once. A
// layer comes from a sandbox that was made for it, in which no code of a tenant has run.
type packageLayers struct {
	store   *packagelayers.Store // nil for none
	runtime layered
	from    *guestpackages.Sources
	// sandbox returns one that nobody had, and what ends it.
	sandbox func(ctx context.Context, kind string) (*installing, func(context.Context) error, error)
	// needed are layers of snapshots.
	needed func() (map[string]bool, error)
	logger hclog.Logger

	ending     context.Context // ends with close
	end        context.CancelFunc
	background sync.WaitGroup

	mu       sync.Mutex
	building map[string]*building // by key
}

// building is a layer in the making, for all who want it at the moment.
type building struct {
	cancel context.CancelFunc
	users  int // guarded by packageLayers.mu; who is the last to go cancels

	done chan struct{}
	// What follows is set before done is closed. There is a layer if the installation has
	// succeeded and err is nil.
	layer          *packagelayers.Layer
	result         sdk.ExecuteResult
	stdout, stderr []byte
	err            error // why there is nothing but to install
}

// openPackageLayers opens the store of layers and says what all sandboxes are to see.
func (s settings) openPackageLayers(req sdk.ConfigureRequest, logger hclog.Logger) (*packageLayers, []runsc.Mount, error) {
	l := &packageLayers{logger: logger, building: map[string]*building{}}
	l.ending, l.end = context.WithCancel(context.Background())
	if s.Runtime != runtimeRunsc || !s.Packages.On() || s.PackageLayersMB == 0 {
		return l, nil, nil
	}
	dir := req.KeepDir
	if dir == "" {
		dir = req.StateDir // nothing outlives a trial
	}
	var err error
	l.store, err = packagelayers.Open(packagelayers.Options{
		Dir: filepath.Join(dir, "package-layers"), Bytes: s.PackageLayersMB << 20, Age: s.PackageLayersAge,
		Needed: func() (map[string]bool, error) { return l.needed() }, Logger: logger,
	})
	if err != nil {
		return nil, nil, err
	}
	return l, []runsc.Mount{{Source: l.store.Dir(), Destination: packageLayersDir, ReadOnly: true}}, nil
}

// startPackageLayers gives the layers what they need of the rest, and removes from now on what
// nobody needs.
func (p *Provider) startPackageLayers() {
	l := p.layers
	l.from, l.sandbox = p.packages, p.forLayer
	l.needed = p.snapshots.neededLayers
	p.sandboxes.layers = l
	if p.snapshots != nil {
		p.snapshots.layers = l
	}
	if l.store == nil {
		return
	}
	l.runtime = p.runtime.(layered)
	l.background.Go(func() {
		again := time.NewTicker(collectInterval)
		defer again.Stop()
		for l.ending.Err() == nil {
			if err := l.store.Collect(); err != nil {
				l.logger.Warn("layers of packages that nobody needs could not be removed", "error", err)
			}
			select {
			case <-again.C:
			case <-l.ending.Done():
			}
		}
	})
}

// close returns when nothing is in progress any more. Nobody installs then.
func (l *packageLayers) close() {
	l.end()
	l.background.Wait()
}

// install installs packages in an instance: from a layer where there can be one, else with the
// installer of the language.
func (l *packageLayers) install(ctx context.Context, i *instance, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	in, err := l.from.Begin(i, req)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer in.End()
	if l.store == nil {
		return in.Install(ctx, req.Timeout, out)
	}
	began := time.Now()
	late := func() (sdk.ExecuteResult, error) {
		return in.Report(sdk.ExecuteResult{
			Status: sdk.StatusTimeout, ExitCode: 137, Duration: time.Since(began), Detail: guest.TimeoutDetail(req.Timeout),
		}, nil, nil, out)
	}
	waiting, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	layer, failed, err := l.layer(waiting, i, in, req)
	switch {
	case ctx.Err() != nil:
		if layer != nil {
			layer.Release()
		}
		return sdk.ExecuteResult{}, ctx.Err()
	case failed != nil:
		return handOver(req, failed.result, failed.stdout, failed.stderr, out)
	case waiting.Err() != nil && layer == nil:
		return late()
	case layer == nil:
		l.logger.Info("packages are installed without a layer", "instance", i.ID, "reason", err)
		return l.plain(ctx, i, in, req, began, out)
	}
	result, said, err := in.Run(ctx, guestclient.Installer{
		Argv: packages.Layer(req.Language, in.Programs().Interpreters[req.Language], filepath.Join(packageLayersDir, layer.ID)),
	}, max(req.Timeout-time.Since(began), time.Second))
	if err != nil || result.Status != sdk.StatusSucceeded || req.Language != sdk.Python {
		layer.Release() // it is not in use, or was copied
	} else {
		i.sandbox().layers.add(layer.ID, layer.Release)
	}
	switch {
	case err != nil:
		return sdk.ExecuteResult{}, err
	case result.Status == sdk.StatusSucceeded:
		result.Duration = time.Since(began)
		return handOver(req, result, layer.Stdout, layer.Stderr, out)
	case result.Status == sdk.StatusTimeout:
		return late()
	}
	l.logger.Warn("a layer of packages could not be used; the packages are installed instead", "instance", i.ID, "layer", layer.ID, "status", result.Status, "said", said)
	return l.plain(ctx, i, in, req, began, out)
}

// plain has the installer of the language do it, in what is left of the time. It finds no link
// of a layer in its way.
func (l *packageLayers) plain(ctx context.Context, i *instance, in *guestpackages.Installation, req sdk.InstallPackagesRequest, began time.Time, out sdk.Output) (sdk.ExecuteResult, error) {
	if len(i.sandbox().layers.all()) > 0 && req.Language == sdk.Python {
		result, said, err := in.Run(ctx, guestclient.Installer{
			Argv: packages.Own(in.Programs().Interpreters[sdk.Python], packageLayersDir),
		}, max(req.Timeout-time.Since(began), time.Second))
		switch {
		case err != nil:
			return sdk.ExecuteResult{}, err
		case result.Status != sdk.StatusSucceeded:
			return in.Report(result, nil, []byte(said), out)
		}
	}
	return in.Install(ctx, max(req.Timeout-time.Since(began), time.Second), out)
}

// handOver hands over what an installation elsewhere came to.
func handOver(req sdk.InstallPackagesRequest, result sdk.ExecuteResult, stdout, stderr []byte, out sdk.Output) (sdk.ExecuteResult, error) {
	clipped := func(text []byte) []byte {
		if int64(len(text)) > req.OutputLimit {
			result.Truncated = true
		}
		return text[:min(int64(len(text)), req.OutputLimit)]
	}
	stdout, stderr = clipped(stdout), clipped(stderr)
	return result, errors.Join(out.Stdout(stdout), out.Stderr(stderr))
}

// layer returns the layer of what is to be installed: one that is there, or one that is built
// meanwhile. failed is an installation that has not succeeded, which it would not in the
// instance either. Where there is neither, err says why.
func (l *packageLayers) layer(ctx context.Context, i *instance, in *guestpackages.Installation, req sdk.InstallPackagesRequest) (_ *packagelayers.Layer, failed *building, err error) {
	set := packages.Set(req.Language, req.Requirements)
	key, err := l.key(i.kind, in, req.Language, set)
	if err != nil {
		return nil, nil, err
	}
	there, err := l.store.Use(ctx, key)
	if there != nil || err != nil {
		return there, nil, err
	}
	// Whoever waits has a time limit of its own, and some may have longer ones.
	timeout := max(req.Timeout, installTimeout)
	b, err := l.join(key, timeout+makeTimeout+keepTimeout, func(ctx context.Context, b *building) {
		l.build(ctx, b, key, i, sdk.InstallPackagesRequest{
			Language: req.Language, Requirements: set, Timeout: timeout, OutputLimit: req.OutputLimit,
		})
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.leave(key, b)
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	switch {
	case b.err != nil:
		return nil, nil, b.err
	case b.layer == nil:
		return nil, b, nil
	}
	release, err := l.store.Hold(ctx, b.layer.ID)
	if err != nil {
		return nil, nil, err
	}
	return b.layer.Again(release), nil, nil
}

// key identifies what an installation would come to.
func (l *packageLayers) key(kind string, in *guestpackages.Installation, language sdk.Language, set []string) (string, error) {
	programs := kind // the sum of an image
	if !isImage(kind) {
		has := in.Programs()
		paths := []string{has.NPM}
		for _, path := range has.Interpreters {
			paths = append(paths, path)
		}
		slices.Sort(paths)
		programs = l.runtime.Programs(paths)
	}
	text, err := json.Marshal(struct {
		Form                               int
		Language                           sdk.Language
		Set                                []string
		Interpreter, NPM, Programs, Source string
	}{1, language, set, in.Programs().Interpreters[language], in.Programs().NPM, programs, l.from.Identity()})
	return packagelayers.Key(sha256.Sum256(text)), err
}

// join waits for a layer with others, or is the first who wants it. The caller owes a leave.
func (l *packageLayers) join(key string, bound time.Duration, build func(context.Context, *building)) (*building, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.building[key]; b != nil {
		b.users++
		return b, nil
	}
	switch {
	case l.ending.Err() != nil:
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the provider is shutting down")
	case len(l.building) >= layersAtOnce:
		return nil, errBusy
	}
	ctx, cancel := context.WithTimeout(l.ending, bound)
	b := &building{cancel: cancel, users: 1, done: make(chan struct{})}
	l.building[key] = b
	l.background.Go(func() {
		defer cancel()
		build(ctx, b)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.forget(key, b)
		close(b.done)
		if b.users == 0 && b.layer != nil {
			b.layer.Release()
		}
	})
	return b, nil
}

// errBusy is why there is no layer while many are built.
var errBusy = errors.New("other layers are being built")

// forget is called with the lock held.
func (l *packageLayers) forget(key string, b *building) {
	if l.building[key] == b {
		delete(l.building, key)
	}
}

// leave says that somebody does not wait any more. What nobody waits for is not built.
func (l *packageLayers) leave(key string, b *building) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.users--; b.users > 0 {
		return
	}
	select {
	case <-b.done:
		if b.layer != nil {
			b.layer.Release()
		}
	default:
		b.cancel()
		l.forget(key, b)
	}
}

// build installs packages in a sandbox that nobody had, and keeps what is there then. Of the
// instance it knows whose it is, for the log of connections, and what it is made of.
func (l *packageLayers) build(ctx context.Context, b *building, key string, i *instance, req sdk.InstallPackagesRequest) {
	kind := i.kind
	if !isImage(kind) {
		kind = templateOf(req.Language)
	}
	fresh, destroy, err := l.sandbox(ctx, kind)
	if err != nil {
		b.err = err
		return
	}
	fresh.tenant, fresh.instance = i.Owner()
	defer func() {
		if err := destroy(context.WithoutCancel(ctx)); err != nil {
			l.logger.Warn("destroy the sandbox in which a layer of packages was made", "error", err)
		}
	}()
	in, err := l.from.Begin(fresh, req)
	if err != nil {
		b.err = err
		return
	}
	defer in.End()
	var stdout, stderr bytes.Buffer
	b.result, b.err = in.Install(ctx, req.Timeout, buffers{&stdout, &stderr})
	b.stdout, b.stderr = stdout.Bytes(), stderr.Bytes()
	if b.err != nil || b.result.Status != sdk.StatusSucceeded {
		return
	}
	keeping, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	archive, err := fresh.guest.Instance().ReadArchive(keeping, sdk.ReadArchiveRequest{Directory: packages.InstalledDir(req.Language)})
	if err != nil {
		b.err = err
		return
	}
	b.layer, b.err = l.store.Add(keeping, key, archive, packagelayers.Installed{Stdout: b.stdout, Stderr: b.stderr})
	_ = archive.Close()
}

// templateOf is the template for code of a language.
func templateOf(language sdk.Language) string {
	if language == sdk.JavaScript {
		return templateNode
	}
	return templatePython
}

// forLayer takes a sandbox that nobody had from the pool, if there is a place for it at once:
// tenants do not wait for the sake of a layer.
func (p *Provider) forLayer(ctx context.Context, kind string) (*installing, func(context.Context) error, error) {
	none := time.Duration(0)
	s, err := p.pool.Acquire(ctx, pool.Request{Template: kind, Patience: makeTimeout, MaxQueue: &none})
	if err != nil {
		return nil, nil, err
	}
	return &installing{sandbox: s}, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, makeTimeout)
		defer cancel()
		defer p.pool.Release()
		return s.Destroy(ctx)
	}, nil
}

// buffers keep what an installer prints, which it bounds.
type buffers struct{ stdout, stderr *bytes.Buffer }

var _ sdk.Output = buffers{}

// Stdout implements sdk.Output.
func (b buffers) Stdout(p []byte) error { _, err := b.stdout.Write(p); return err }

// Stderr implements sdk.Output.
func (b buffers) Stderr(p []byte) error { _, err := b.stderr.Write(p); return err }

// Artifact implements sdk.Output.
func (buffers) Artifact(sdk.Artifact) error { return nil }
