package provider

import (
	"context"
	"errors"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
)

// imager is a runtime that can start copies of a sandbox that was prepared
// before, which takes less time than to prepare each.
type imager interface {
	MakeImage(ctx context.Context, id string, env []string) (*runsc.Image, error)
	StartImage(id string, image *runsc.Image) (running, error)
}

var _ imager = runscRuntime{}

// imagedTemplates are those whose sandboxes may be copies. Bash and Node are not
// among them: each seeds its random numbers once, at its start, and all copies
// would draw the same.
var imagedTemplates = map[string]bool{templatePython: true}

// images has an image for each template, made when the first is needed.
type images struct {
	mu   sync.Mutex
	made map[string]*madeImage
}

type madeImage struct {
	ready chan struct{} // closed when the rest is valid
	image *runsc.Image  // nil if there is none
}

// gone reports whether there was an image that somebody has removed.
func (m *madeImage) gone() bool {
	select {
	case <-m.ready:
		return m.image != nil && m.image.Gone()
	default:
		return false
	}
}

// image returns the image for a template, nil if sandboxes of it are to be made
// without.
func (p *Provider) image(ctx context.Context, template string) (*runsc.Image, error) {
	maker, can := p.runtime.(imager)
	if !can || !p.settings.Images || !imagedTemplates[template] {
		return nil, nil
	}
	p.images.mu.Lock()
	made := p.images.made[template]
	if made == nil || made.gone() {
		made = &madeImage{ready: make(chan struct{})}
		if p.images.made == nil {
			p.images.made = map[string]*madeImage{}
		}
		p.images.made[template] = made
		p.images.mu.Unlock()
		defer close(made.ready)
		var err error
		if made.image, err = p.makeImage(ctx, maker, template); err != nil {
			p.logger.Info("sandboxes are prepared one by one, for no image can be made", "template", template, "error", err)
		}
		return made.image, nil
	}
	p.images.mu.Unlock()
	select {
	case <-made.ready:
		return made.image, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dropImage has later sandboxes made without an image that is of no use.
func (p *Provider) dropImage(template string) {
	none := &madeImage{ready: make(chan struct{})}
	close(none.ready)
	p.images.mu.Lock()
	defer p.images.mu.Unlock()
	p.images.made[template] = none
}

func (p *Provider) makeImage(ctx context.Context, maker imager, template string) (*runsc.Image, error) {
	encoded, err := guest.EncodePrepare(p.preparation(template))
	if err != nil {
		return nil, err
	}
	return maker.MakeImage(ctx, newID(), []string{guest.PrepareVariable + "=" + encoded})
}

// start starts a sandbox, as a copy if it can be one.
func (p *Provider) start(ctx context.Context, id, template string) (s running, copied bool, err error) {
	image, err := p.image(ctx, template)
	if err != nil {
		return nil, false, err
	}
	if image == nil {
		s, err = p.runtime.Start(ctx, id)
		return s, false, err
	}
	s, err = p.runtime.(imager).StartImage(id, image)
	return s, true, err
}

// preparation is what the guest of a template's sandbox is to do before it takes
// any code.
func (p *Provider) preparation(template string) *guestv1.PrepareRequest {
	return &guestv1.PrepareRequest{
		Interpreters:  p.interpreters,
		Warm:          []string{string(languageOf(template))},
		MemoryLimit:   p.memoryLimit(),
		ProcessLimit:  uint64(p.settings.Processes),
		FileSizeLimit: uint64(p.settings.WorkspaceMB) << 20,
		CodePolicy:    p.codePolicy,
		Packages:      p.canInstallPython(),
	}
}

// makeSandbox starts a sandbox and returns when its interpreter is ready.
func (p *Provider) makeSandbox(ctx context.Context, template string) (*sandbox, error) {
	s, copied, err := p.makeOne(ctx, template)
	if err == nil || !copied || ctx.Err() != nil {
		return s, err
	}
	p.logger.Warn("a copy of the prepared sandbox does not work; sandboxes are prepared one by one from now on", "template", template, "error", err)
	p.dropImage(template)
	s, _, again := p.makeOne(ctx, template)
	if again != nil {
		return nil, errors.Join(again, err)
	}
	return s, nil
}
