package admin

import (
	"context"
	"crypto/sha256"
	"os"
	"slices"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/edit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxKept is how many bytes of text the generations have that are kept.
const maxKept = 16 << 20

// FileText is a file of the configuration as it was.
type FileText struct {
	Path string
	Text []byte
}

// Texts keeps the files of the last generations, in memory alone. The zero Texts has none.
// It may be used concurrently.
type Texts struct {
	mu   sync.Mutex
	kept []keptTexts // the newest last
	size int
}

type keptTexts struct {
	generation int
	files      []FileText
	size       int
}

// Keep reads the files that a generation was made of, and keeps them. Files that are others
// by now, or cannot be read, are not those of the generation: nothing is kept then.
func (t *Texts) Keep(generation int, cfg *config.Config) {
	k := keptTexts{generation: generation}
	for _, f := range cfg.Files() {
		if f.Kind != config.FileMain && f.Kind != config.FileIncluded {
			continue
		}
		text, err := os.ReadFile(f.Path)
		if err != nil || sha256.Sum256(text) != f.SHA256 {
			return
		}
		k.files, k.size = append(k.files, FileText{f.Path, text}), k.size+len(text)
	}
	if len(k.files) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept, t.size = append(t.kept, k), t.size+k.size
	for len(t.kept) > keptReloads || t.size > maxKept {
		t.size -= t.kept[0].size
		t.kept = slices.Clone(t.kept[1:])
	}
}

// Of returns the files of a generation; none if they are not kept.
func (t *Texts) Of(generation int) []FileText {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.kept {
		if k.generation == generation {
			return k.files
		}
	}
	return nil
}

// Restore writes the files as they were when a generation came in force. It is a change as
// others are, with their errors; SB013 for a generation that is not kept, and SB014 also
// where the configuration has other files by now.
func (c *Configurator) Restore(ctx context.Context, generation int, ifMatch []string) (Outcome, error) {
	e, err := c.restoreEdit(generation, ifMatch)
	if err != nil {
		return Outcome{}, err
	}
	return c.Change(ctx, e)
}

func (c *Configurator) restoreEdit(generation int, ifMatch []string) (Edit, error) {
	files := c.daemon.Texts(generation)
	if files == nil {
		return Edit{}, sdk.Errorf(sdk.CodeNotFound, "there is no such generation, or its files are not kept any more: GET /generations says which can be restored")
	}
	return Edit{Operation: "restore", IfMatch: ifMatch, Make: func(d *edit.Document) error {
		var now, then []string
		for _, text := range d.Texts() {
			now = append(now, text.Path)
		}
		for _, f := range files {
			then = append(then, f.Path)
		}
		slices.Sort(now)
		if slices.Sort(then); !slices.Equal(now, then) {
			return sdk.Errorf(sdk.CodeConflict, "the configuration has other files than that generation had; add or remove files by hand first")
		}
		for _, f := range files {
			if err := d.Replace(f.Path, f.Text); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}
