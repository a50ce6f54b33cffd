package provider

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// keptImages are what was built of templates and stays for the sake of snapshots, also where the
// template is removed or built anew. A nil one is of a provider without templates.
type keptImages struct {
	templates *templates
	store     *imagestore.Store // as one owner more, who wants what snapshots on the disk need
	needed    func() (map[string]bool, error)

	mu sync.Mutex
	// using counts the snapshots that are being taken, by image: they are not on the disk yet.
	using map[string]int
}

// keepImages has images stay that snapshots on the disk need, and those go that none needs any
// more. It is called before anything is collected.
func (s *snapshots) keepImages(ctx context.Context, t *templates, store *imagestore.Store) error {
	s.images = &keptImages{templates: t, store: store, needed: s.neededImages, using: map[string]int{}}
	needed, err := s.neededImages()
	if err != nil {
		return err
	}
	for image := range needed {
		// One that somebody has removed is missed by who goes on from the snapshot.
		if err := store.Keep(ctx, image); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.images.forget(ctx)
}

// neededImages are those that snapshots on the disk need.
func (s *snapshots) neededImages() (map[string]bool, error) {
	needed := map[string]bool{}
	headers, err := s.disk.List(s.unreadable)
	for _, h := range headers {
		if h.Image != "" {
			needed[h.Image] = true
		}
	}
	return needed, err
}

// use has an image stay until release is called. keep has it stay until no snapshot on the disk
// needs it; that is not looked at before release.
func (k *keptImages) use(ctx context.Context, image string) (release func(), keep func() error, err error) {
	if image == "" {
		return func() {}, func() error { return nil }, nil
	}
	_, used, err := k.templates.store.Use(image)
	if err != nil {
		return nil, nil, sdk.Errorf(sdk.CodeConflict, "the template of the instance is being removed (%w)", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.using[image]++
	release = sync.OnceFunc(func() {
		k.mu.Lock()
		if k.using[image]--; k.using[image] == 0 {
			delete(k.using, image)
		}
		k.mu.Unlock()
		used()
		k.templates.collect()
	})
	return release, func() error { return k.store.Keep(ctx, image) }, nil
}

// collect removes in the background what no snapshot needs any more.
func (k *keptImages) collect(ctx context.Context) error {
	if k == nil {
		return nil
	}
	if err := k.forget(ctx); err != nil {
		return err
	}
	k.templates.collect()
	return nil
}

// forget has images go that no snapshot needs.
func (k *keptImages) forget(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	images, err := k.store.List()
	if err != nil || len(images) == 0 {
		return err
	}
	needed, err := k.needed()
	if err != nil {
		return err
	}
	var errs error
	let := map[string]bool{}
	for _, image := range images {
		if !needed[image.Image] && k.using[image.Image] == 0 {
			errs = errors.Join(errs, k.store.Remove(ctx, image.Image))
			let[image.Image] = true
		}
	}
	if len(let) == 0 {
		return errs
	}
	// Another process of the provider may have put a snapshot there meanwhile.
	if needed, err = k.needed(); err != nil {
		return errors.Join(errs, err)
	}
	for image := range needed {
		if let[image] {
			errs = errors.Join(errs, k.store.Keep(ctx, image))
		}
	}
	return errs
}
