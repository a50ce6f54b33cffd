package provider

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

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
	when   string // the setting
	make   func(ctx context.Context, template string) (*runsc.Image, error)
	logger hclog.Logger
	ending context.Context // ends with stop
	end    context.CancelFunc

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

// newImages makes images with a runtime that can, when the setting says. The caller owes
// a call of stop.
func newImages(when string, make func(ctx context.Context, template string) (*runsc.Image, error), logger hclog.Logger) *images {
	ending, end := context.WithCancel(context.Background())
	return &images{when: when, make: make, logger: logger, ending: ending, end: end}
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

// take returns the image to make a sandbox of a template from, nil if it is to be made
// without one. The caller owes a call of release when the sandbox has been made.
func (i *images) take(ctx context.Context, template string) (*madeImage, error) {
	if i.when == imagesNever || !imagedTemplates[template] {
		return nil, nil
	}
	now, always := time.Now(), i.when == imagesAlways
	i.mu.Lock()
	defer i.mu.Unlock()
	if !always && !i.demanded(template, now) {
		return nil, nil
	}
	latest := i.latest[template]
	if latest == nil || latest.outdated(now) {
		latest = i.begin(template, now, latest)
	}
	if always && !latest.done() && latest.earlier == nil {
		i.mu.Unlock()
		select {
		case <-latest.ready:
		case <-ctx.Done():
		}
		i.mu.Lock()
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

// begin starts making an image in place of an earlier one. It is called with the lock
// held.
func (i *images) begin(template string, now time.Time, earlier *madeImage) *madeImage {
	next := &madeImage{began: now, ready: make(chan struct{})}
	if earlier.usable() {
		next.earlier = earlier
	}
	if i.latest == nil {
		i.latest = map[string]*madeImage{}
	}
	i.latest[template] = next
	i.making.Go(func() {
		ctx, cancel := context.WithTimeout(i.ending, makeTimeout)
		defer cancel()
		image, err := i.make(ctx, template)
		if err != nil && i.ending.Err() == nil {
			i.logger.Info("sandboxes are prepared one by one, for no image can be made", "template", template, "error", err)
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		next.image, next.earlier = image, nil
		close(next.ready)
		if earlier != nil {
			earlier.replaced = true
			i.removeUnused(earlier)
		}
	})
	return next
}

// release ends the use of an image that take has returned; nil is none.
func (i *images) release(m *madeImage) {
	if m == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	m.users--
	i.removeUnused(m)
}

// removeUnused removes an image that no copy will be started from. It is called with
// the lock held.
func (i *images) removeUnused(m *madeImage) {
	if !m.replaced || m.users > 0 || m.image == nil {
		return
	}
	if err := m.image.Remove(); err != nil {
		i.logger.Warn("remove an image that was replaced", "error", err)
	}
}

// drop has later sandboxes made without an image that is of no use, until the next
// one is due.
func (i *images) drop(template string, useless *madeImage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.latest[template] != useless {
		return
	}
	none := &madeImage{began: time.Now(), ready: make(chan struct{})}
	close(none.ready)
	i.latest[template] = none
	useless.replaced = true
	i.removeUnused(useless)
}

// stop returns when no image is being made any more, and none will be.
func (i *images) stop() {
	i.end()
	i.making.Wait()
}
