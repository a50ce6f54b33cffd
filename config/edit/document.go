package edit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/atomicfile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Document is a configuration that is being changed. It is for one goroutine.
type Document struct {
	path     string
	options  []config.Option
	files    []*file // the main one first
	revision string
}

// Open reads a configuration and the files that it includes. They may have
// mistakes, but not in their syntax. Options are those of config.Load.
func Open(path string, options ...config.Option) (*Document, error) {
	cfg, diags := config.Load(path, options...)
	d := &Document{path: path, options: options, revision: cfg.Revision}
	for _, read := range cfg.Files() {
		if read.Kind != config.FileMain && read.Kind != config.FileIncluded {
			continue
		}
		if read.Err != nil {
			return nil, diags
		}
		text, err := os.ReadFile(read.Path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", read.Name, err)
		}
		if sha256.Sum256(text) != read.SHA256 {
			return nil, changedMeanwhile(read.Name, nil)
		}
		f, wrong := newFile(read, text)
		if wrong != nil {
			return nil, wrong
		}
		d.files = append(d.files, f)
	}
	if len(d.files) == 0 {
		return nil, diags
	}
	return d, nil
}

// Revision is config.Config.Revision of what was opened. Who has another one has
// seen another configuration.
func (d *Document) Revision() string { return d.revision }

// Changed names the files whose text is another one now.
func (d *Document) Changed() []string {
	var names []string
	for _, f := range d.changed() {
		names = append(names, f.name)
	}
	return names
}

func (d *Document) changed() []*file {
	return slices.DeleteFunc(slices.Clone(d.files), func(f *file) bool { return sha256.Sum256(f.text) == f.sum })
}

// Text of a file as it was opened, or last saved, and as it is now.
type Text struct {
	Path, Name    string
	Before, After []byte
}

// Texts are those of all files, the main one first.
func (d *Document) Texts() []Text {
	var texts []Text
	for _, f := range d.files {
		texts = append(texts, Text{f.path, f.name, f.original, f.text})
	}
	return texts
}

// Replace gives a file, which must be one of the configuration, another text as a whole.
// The error is SB013 for a file that is none of it, or config.Diagnostics for a text whose
// syntax is wrong.
func (d *Document) Replace(path string, text []byte) error {
	for i, f := range d.files {
		if f.path != path {
			continue
		}
		changed, wrong := newFile(config.File{Path: f.path, Name: f.name, SHA256: f.sum}, bytes.Clone(text))
		if wrong != nil {
			return wrong
		}
		changed.original = f.original
		d.files[i] = changed
		return nil
	}
	return sdk.Errorf(sdk.CodeNotFound, "%s is no file of the configuration", path)
}

// Check reads the whole configuration as it would be. Its Revision is the one
// that a Load after Save has.
func (d *Document) Check() (*config.Config, config.Diagnostics) {
	options := slices.Clone(d.options)
	for _, f := range d.files {
		options = append(options, config.WithContent(f.path, f.text))
	}
	return config.Load(d.path, options...)
}

// Save checks the whole and writes the files that have changed. With mistakes
// (config.Diagnostics), or when any file of the configuration is not what it was
// at Open, nothing is written.
func (d *Document) Save() error {
	if _, diags := d.Check(); diags.HasErrors() {
		return diags
	}
	return d.write()
}

// write replaces the files that have changed, all or none as far as the machine
// permits.
func (d *Document) write() error {
	if err := d.compare(); err != nil {
		return err
	}
	var written []*file
	for _, f := range d.changed() {
		if err := atomicfile.Replace(f.path, f.text, f.sum); err != nil {
			return errors.Join(refused(f.name, err), putBack(written))
		}
		written = append(written, f)
	}
	for _, f := range written {
		f.original, f.sum = f.text, sha256.Sum256(f.text)
	}
	cfg, _ := config.Load(d.path, d.options...)
	d.revision = cfg.Revision
	return nil
}

// compare finds out whether the files are still those that were opened.
func (d *Document) compare() error {
	before, now := map[string][sha256.Size]byte{}, map[string][sha256.Size]byte{}
	for _, f := range d.files {
		before[f.path] = f.sum
	}
	cfg, _ := config.Load(d.path, d.options...)
	for _, f := range cfg.Files() {
		if f.Kind == config.FileMain || f.Kind == config.FileIncluded {
			now[f.Path] = f.SHA256
		}
	}
	if !maps.Equal(before, now) {
		return changedMeanwhile(d.path, nil)
	}
	return nil
}

// CheckWritable finds out, as far as that can be seen without writing, whether Save
// could replace the files. The error is SB012.
func (d *Document) CheckWritable() error {
	for _, f := range d.files {
		if err := atomicfile.Check(f.path); err != nil {
			return refused(f.name, err)
		}
	}
	return nil
}

// putBack undoes what was written before a file that could not be.
func putBack(written []*file) error {
	var problems []error
	for _, f := range written {
		if err := atomicfile.Replace(f.path, f.original, sha256.Sum256(f.text)); err != nil {
			problems = append(problems, fmt.Errorf("undo the change of %s: %w", f.name, err))
		}
	}
	return errors.Join(problems...)
}

func refused(name string, err error) error {
	switch {
	case errors.Is(err, atomicfile.ErrChanged):
		return changedMeanwhile(name, err)
	case errors.Is(err, atomicfile.ErrReadOnly):
		return sdk.Errorf(sdk.CodeNotAllowed, "%s: %w", name, err)
	default:
		return fmt.Errorf("write %s: %w", name, err)
	}
}

func changedMeanwhile(name string, cause error) error {
	if cause == nil {
		cause = atomicfile.ErrChanged
	}
	return sdk.Errorf(sdk.CodeConflict, "%s: %w; look at it as it is now and try again", name, cause)
}
