package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/tail"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// sandbox is a running sandbox with the connection to its guest.
type sandbox struct {
	running
	ID     string
	guest  *guestclient.Client
	limits confine.Limits
	gvisor bool // whether a kernel of its own runs it
	past   past
	// left says that its instance is not in it any more: it ends without it.
	left atomic.Bool
	// usual says that it has the file systems and the limits of the provider's settings, and
	// nothing beside: copies are started with these.
	usual bool
	// template is what it was made of; nil for one of those of the provider.
	template *template
	// release gives back what it has of this machine beside itself; nil for nothing.
	release func()
	// layers of packages that it has.
	layers *usedLayers
}

// maker makes sandboxes.
type maker struct {
	runtime      sandboxRuntime
	interpreters interpreters
	limits       confine.Limits
	codePolicy   []byte // as the guest reads it
	packages     bool   // whether code may ask for some
	images       *images
	templates    *templates
	layers       *packageLayers
	logger       hclog.Logger
}

// newMaker makes the maker of the sandboxes that the settings describe. The caller owes
// a call of close.
func newMaker(s settings, runtime sandboxRuntime, found interpreters, logger hclog.Logger) (*maker, error) {
	policy, err := s.Policy.Encoded()
	if err != nil {
		return nil, err
	}
	m := &maker{runtime: runtime, interpreters: found, limits: s.limits(), codePolicy: policy, logger: logger}
	when := s.Images
	if _, can := runtime.(imager); !can {
		when = imagesNever
	}
	m.images = newImages(when, m.makeImage, logger)
	return m, nil
}

// close returns when nothing is being made any more. The pool is closed before.
func (m *maker) close() { m.images.stop() }

// shares are the initial demand for each template that can be made here.
func (m *maker) shares() map[string]int {
	shares := map[string]int{}
	for template, share := range map[string]int{templatePython: 5, templateNode: 3, templateBash: 2} {
		if m.interpreters[languageOf(template)] != "" {
			shares[template] = share
		}
	}
	return shares
}

// make starts a sandbox and returns when its interpreter is ready.
func (m *maker) make(ctx context.Context, template string) (*sandbox, error) {
	if isImage(template) {
		return m.makeOfTemplate(ctx, template, shared{})
	}
	image, err := m.images.take(ctx, template)
	if err != nil {
		return nil, err
	}
	s, err := m.makeOne(ctx, template, image)
	m.images.release(image)
	if err == nil || image == nil || ctx.Err() != nil {
		return s, err
	}
	m.logger.Warn("a copy of the prepared sandbox does not work; sandboxes are prepared one by one for a while", "template", template, "error", err)
	m.images.drop(template, image)
	s, again := m.makeOne(ctx, template, nil)
	if again != nil {
		return nil, errors.Join(again, err)
	}
	return s, nil
}

// makeOne starts a sandbox, as a copy of the image unless that is nil, and returns when
// its interpreter is ready.
func (m *maker) makeOne(ctx context.Context, template string, image *madeImage) (*sandbox, error) {
	s, err := m.complete(ctx, m.preparation(template), func(id string) (running, error) { return m.start(ctx, id, image) })
	if err == nil {
		s.usual = true
	}
	return s, err
}

// complete starts a sandbox and returns when it is prepared.
func (m *maker) complete(ctx context.Context, preparation *guestv1.PrepareRequest, start func(id string) (running, error)) (*sandbox, error) {
	id := newID()
	raw, err := start(id)
	if err != nil {
		return nil, err
	}
	s := &sandbox{running: raw, ID: id, limits: m.limits, gvisor: m.runtime.GVisor(), layers: &usedLayers{}}
	if s.guest, err = guestclient.New(raw.Conn()); err == nil {
		err = s.prepare(ctx, preparation)
	}
	if err != nil {
		// Also the end of what it says: it has ended, or is ended here.
		destroyed := s.Destroy(context.WithoutCancel(ctx))
		return nil, errors.Join(m.explainStart(err, raw.Stderr()), destroyed)
	}
	return s, nil
}

// copy starts a copy of a sandbox as it was at a checkpoint, and returns when its guest
// is another one than that of the original. What was there has these variables from then on.
func (m *maker) copy(ctx context.Context, from kept, env map[string]string) (*sandbox, error) {
	s, err := m.startFrom(ctx, from, func(s *sandbox) error { return s.guest.Renew(ctx, env) })
	if err != nil {
		return nil, m.explainCopy(ctx, err)
	}
	return s, nil
}

// startFrom starts a sandbox as it was at a checkpoint, and returns when its guest was told what
// it is.
func (m *maker) startFrom(ctx context.Context, from kept, tell func(*sandbox) error) (*sandbox, error) {
	id := newID()
	layers, err := m.layers.hold(ctx, from.layers)
	if err != nil {
		return nil, errors.Join(runsc.ErrUnlike, err)
	}
	s := &sandbox{ID: id, limits: m.limits, gvisor: m.runtime.GVisor(), usual: from.image == "", layers: layers}
	var of *runsc.Template
	if from.image != "" {
		if s.template, err = m.templates.use(from.image, m.limits); err != nil {
			layers.end()
			return nil, errors.Join(runsc.ErrUnlike, err)
		}
		s.limits, s.release = s.template.limits, s.template.release
		of = &runsc.Template{Rootfs: s.template.Rootfs(), Limits: s.limits}
	}
	raw, err := m.runtime.(checkpointer).StartCopy(ctx, id, from.Checkpoint, of)
	if err != nil {
		layers.end()
		if s.release != nil {
			s.release()
		}
		return nil, err
	}
	s.running = raw
	if s.guest, err = guestclient.New(raw.Conn()); err == nil {
		err = tell(s)
	}
	if err != nil {
		err = errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
		return nil, m.explainStart(err, raw.Stderr())
	}
	return s, nil
}

// explainCopy says why there is no copy; the details are for the log.
func (m *maker) explainCopy(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.logger.Error("start a copy of a snapshot", "error", err)
	if errors.Is(err, runsc.ErrUnlike) {
		e := sdk.FieldErrorf(sdk.CodeConflict, "snapshot", "the snapshot was made with other files or limits than sandboxes have now, and cannot be used any more: delete it, and make another")
		e.NoEffect = true
		return e
	}
	return sdk.Errorf(sdk.CodeCreateFailed, "the snapshot could not be started; the log of the broker says why")
}

// start starts a sandbox, as a copy of the image unless that is nil.
func (m *maker) start(ctx context.Context, id string, from *madeImage) (running, error) {
	if from == nil {
		return m.runtime.Start(ctx, id)
	}
	return m.runtime.(imager).StartImage(id, from.image)
}

// makeImage makes an image, with a runtime that can.
func (m *maker) makeImage(ctx context.Context, template string) (*runsc.Image, error) {
	encoded, err := guest.EncodePrepare(m.preparation(template))
	if err != nil {
		return nil, err
	}
	return m.runtime.(imager).MakeImage(ctx, newID(), []string{guest.PrepareVariable + "=" + encoded})
}

// preparation is what the guest of a template's sandbox is to do before it takes
// any code.
func (m *maker) preparation(template string) *guestv1.PrepareRequest {
	paths := map[string]string{}
	for language, path := range m.interpreters {
		paths[string(language)] = path
	}
	return &guestv1.PrepareRequest{
		Interpreters:  paths,
		Warm:          []string{string(languageOf(template))},
		MemoryLimit:   m.memoryLimit(),
		ProcessLimit:  uint64(m.limits.Processes),
		FileSizeLimit: uint64(m.limits.WorkspaceMB) << 20,
		CodePolicy:    m.codePolicy,
		Packages:      m.packages,
	}
}

// memoryLimit is what the programs in a sandbox may use together, in bytes, as
// far as its guest can see that.
func (m *maker) memoryLimit() int64 {
	if !m.runtime.GVisor() {
		return math.MaxInt64 // what the guest sees in use there is the host's
	}
	return m.limits.MemoryMB << 20
}

// explainStart says why a sandbox did not come up, as well as it can be known from
// what was said on its standard error.
func (m *maker) explainStart(err error, stderr string) error {
	if words := tail.LastWords(stderr); words != "" {
		err = fmt.Errorf("%w; the sandbox said: %s", err, words)
	}
	if known := m.runtime.Explain(stderr); known != "" {
		err = fmt.Errorf("%w (%w)", sdk.Errorf(sdk.CodeCreateFailed, "%s", known), err)
	}
	return err
}

func (s *sandbox) prepare(ctx context.Context, preparation *guestv1.PrepareRequest) error {
	// A sandbox that ends at once shall not be waited for.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	_, err := s.guest.Prepare(ctx, preparation)
	return err
}

// measure asks the guest what the sandbox uses, and adds the limits.
func (s *sandbox) measure(ctx context.Context) (sdk.InstanceMetrics, error) {
	m, err := s.guest.Instance().InstanceMetrics(ctx, "")
	if err != nil {
		return sdk.InstanceMetrics{}, err
	}
	m.CPULimit = s.limits.CPUs
	m.MemoryLimit, m.ProcessLimit = s.limits.MemoryMB<<20, s.limits.Processes
	if !s.gvisor {
		m.Memory = 0 // what the guest sees in use there is the host's
	}
	return m, nil
}

// Destroy ends the sandbox.
func (s *sandbox) Destroy(ctx context.Context) error {
	if s.guest != nil {
		_ = s.guest.Close()
	}
	err := s.running.Destroy(ctx)
	if err == nil {
		s.layers.end()
	}
	if s.release != nil && err == nil {
		s.release()
		s.release = nil
	}
	return err
}

// idAlphabet and idLength make instance IDs: all of one length, so that none is a
// prefix of another, and about 103 bits, so that none is guessed.
const (
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	idLength   = 20
)

func newID() string {
	id := make([]byte, 0, idLength)
	var b [1]byte
	for len(id) < idLength {
		_, _ = rand.Read(b[:])                     // never fails since Go 1.24
		if n := int(b[0]); n < 7*len(idAlphabet) { // no modulo bias
			id = append(id, idAlphabet[n%len(idAlphabet)])
		}
	}
	return string(id)
}
