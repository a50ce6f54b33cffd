package provider

import (
	"context"
	"errors"
	"sync"
	"time"

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

// Values of the setting images.
const (
	imagesNever    = "never"
	imagesOnDemand = "demand"
	imagesAlways   = "always"
)

// By imagesOnDemand an image is made for a template of which imageDemand sandboxes were
// made within imageDemandWindow. An image costs about as much processor time as four
// sandboxes, and each copy saves a third of one: an image pays for itself with the
// twelfth copy. A pool that is filled after the start makes fewer.
const (
	imageDemand       = 12
	imageDemandWindow = time.Minute
)

// imageMaxAge bounds how long copies share one address layout and one hash seed.
const imageMaxAge = 10 * time.Minute

// images has an image for each template that needs one.
type images struct {
	mu     sync.Mutex
	latest map[string]*madeImage
	// made holds when the latest imageDemand sandboxes of a template were begun, the
	// earliest first.
	made map[string][]time.Time
	// making ends before the runtime does.
	making sync.WaitGroup
}

// madeImage is an image that is being made, or was.
type madeImage struct {
	began time.Time
	ready chan struct{} // closed when image is valid
	image *runsc.Image  // nil if there is none
	// earlier serves until this one is ready; nil for none.
	earlier *madeImage
	// users counts copies that are being started; the image is removed when it is
	// replaced and has none.
	users    int
	replaced bool
}

func (m *madeImage) done() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

// usable reports whether copies can be started.
func (m *madeImage) usable() bool { return m != nil && m.done() && m.image != nil && !m.image.Gone() }

// outdated reports whether another is to be made: this one is old, or somebody has
// removed it.
func (m *madeImage) outdated(now time.Time) bool {
	return m.done() && (now.Sub(m.began) > imageMaxAge || m.image != nil && m.image.Gone())
}

// demanded notes that a sandbox is made, and reports whether so many of its template
// were made lately that an image pays.
func (i *images) demanded(template string, now time.Time) bool {
	if i.made == nil {
		i.made = map[string][]time.Time{}
	}
	times := append(i.made[template], now)
	if len(times) > imageDemand {
		times = times[1:]
	}
	i.made[template] = times
	return len(times) == imageDemand && now.Sub(times[0]) <= imageDemandWindow
}

// image returns the image to make a sandbox of a template from, nil if it is to be made
// without one. The caller owes a call of release when the sandbox has been made.
func (p *Provider) image(ctx context.Context, template string) (*madeImage, error) {
	maker, can := p.runtime.(imager)
	if !can || p.settings.Images == imagesNever || !imagedTemplates[template] {
		return nil, nil
	}
	now, always := time.Now(), p.settings.Images == imagesAlways
	p.images.mu.Lock()
	defer p.images.mu.Unlock()
	if !always && !p.images.demanded(template, now) {
		return nil, nil
	}
	latest := p.images.latest[template]
	if latest == nil || latest.outdated(now) {
		latest = p.beginImage(maker, template, now, latest)
	}
	if always && !latest.done() && latest.earlier == nil {
		p.images.mu.Unlock()
		select {
		case <-latest.ready:
		case <-ctx.Done():
		}
		p.images.mu.Lock()
		if err := ctx.Err(); err != nil && !latest.done() {
			return nil, err
		}
	}
	for _, made := range []*madeImage{latest, latest.earlier} {
		if made.usable() {
			made.users++
			return made, nil
		}
	}
	return nil, nil
}

// beginImage starts making an image in place of an earlier one. It is called with the
// lock held.
func (p *Provider) beginImage(maker imager, template string, now time.Time, earlier *madeImage) *madeImage {
	next := &madeImage{began: now, ready: make(chan struct{})}
	if earlier.usable() {
		next.earlier = earlier
	}
	if p.images.latest == nil {
		p.images.latest = map[string]*madeImage{}
	}
	p.images.latest[template] = next
	p.images.making.Go(func() {
		ctx, cancel := context.WithTimeout(p.ending, makeTimeout)
		defer cancel()
		image, err := p.makeImage(ctx, maker, template)
		if err != nil && p.ending.Err() == nil {
			p.logger.Info("sandboxes are prepared one by one, for no image can be made", "template", template, "error", err)
		}
		p.images.mu.Lock()
		defer p.images.mu.Unlock()
		next.image, next.earlier = image, nil
		close(next.ready)
		if earlier != nil {
			earlier.replaced = true
			p.removeUnused(earlier)
		}
	})
	return next
}

// release ends the use of an image that image has returned; nil is none.
func (p *Provider) release(m *madeImage) {
	if m == nil {
		return
	}
	p.images.mu.Lock()
	defer p.images.mu.Unlock()
	m.users--
	p.removeUnused(m)
}

// removeUnused removes an image that no copy will be started from. It is called with
// the lock held.
func (p *Provider) removeUnused(m *madeImage) {
	if !m.replaced || m.users > 0 || m.image == nil {
		return
	}
	if err := m.image.Remove(); err != nil {
		p.logger.Warn("remove an image that was replaced", "error", err)
	}
}

// dropImage has later sandboxes made without an image that is of no use, until the next
// one is due.
func (p *Provider) dropImage(template string, useless *madeImage) {
	p.images.mu.Lock()
	defer p.images.mu.Unlock()
	if p.images.latest[template] != useless {
		return
	}
	none := &madeImage{began: time.Now(), ready: make(chan struct{})}
	close(none.ready)
	p.images.latest[template] = none
	useless.replaced = true
	p.removeUnused(useless)
}

func (p *Provider) makeImage(ctx context.Context, maker imager, template string) (*runsc.Image, error) {
	encoded, err := guest.EncodePrepare(p.preparation(template))
	if err != nil {
		return nil, err
	}
	return maker.MakeImage(ctx, newID(), []string{guest.PrepareVariable + "=" + encoded})
}

// start starts a sandbox, as a copy of the image unless that is nil.
func (p *Provider) start(ctx context.Context, id string, from *madeImage) (running, error) {
	if from == nil {
		return p.runtime.Start(ctx, id)
	}
	return p.runtime.(imager).StartImage(id, from.image)
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

// stopImages returns when no image is being made any more. The pool is closed before.
func (p *Provider) stopImages() {
	p.stop()
	p.images.making.Wait()
}

// makeSandbox starts a sandbox and returns when its interpreter is ready.
func (p *Provider) makeSandbox(ctx context.Context, template string) (*sandbox, error) {
	image, err := p.image(ctx, template)
	if err != nil {
		return nil, err
	}
	s, err := p.makeOne(ctx, template, image)
	p.release(image)
	if err == nil || image == nil || ctx.Err() != nil {
		return s, err
	}
	p.logger.Warn("a copy of the prepared sandbox does not work; sandboxes are prepared one by one for a while", "template", template, "error", err)
	p.dropImage(template, image)
	s, again := p.makeOne(ctx, template, nil)
	if again != nil {
		return nil, errors.Join(again, err)
	}
	return s, nil
}
