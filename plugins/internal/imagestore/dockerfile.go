package imagestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/dockerfile"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/layers"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Running is a RUN of a Dockerfile.
type Running struct {
	dockerfile.Run
	// Line of the Dockerfile.
	Line int
	// Rootfs is a directory with the root file system so far, which nobody may write to: its
	// files are those of layers.
	Rootfs string
	// Scratch is an empty directory, which is removed afterwards.
	Scratch string
	// Limits of what it may add.
	Limits layers.Limits
	// Request that it is for.
	Request sdk.BuildTemplateRequest
	// Say tells a line of its output.
	Say func(line string)
}

// Runner runs a command, and returns the archive of what it has changed as a layer, which the
// caller closes. Errors of the command have the field "dockerfile".
type Runner func(ctx context.Context, of Running) (io.ReadCloser, error)

// Tools are what a build needs of its provider.
type Tools struct {
	// Install and Run may be nil, and are of no use then.
	Install Installer
	Run     Runner
}

// stages is a build of a Dockerfile.
type stages struct {
	*build
	run     Runner
	context *dockerfile.Context
	images  map[string]*source
	pins    map[string]string // of images, by the names that the file has for them
	keys    map[*dockerfile.Stage]string
	steps   map[*dockerfile.Stage][]stepKey
	done    map[*dockerfile.Stage]*build
}

// stepKey names what a step makes: another one when anything is that it depends on.
type stepKey struct {
	key string
	sum string // of what is copied from the context
}

// ofDockerfile has the layers of a Dockerfile.
func (b *build) ofDockerfile(ctx context.Context, run Runner) (found string, env map[string]string, bases map[string]string, err error) {
	dir := b.req.Context
	if dir == "" {
		dir = filepath.Dir(b.req.Dockerfile)
	}
	opened, text, err := dockerfile.Open(dir, b.req.Dockerfile)
	if err != nil {
		return "", nil, nil, dockerfileError(ctx, err)
	}
	defer opened.Close()
	s := &stages{
		build: b, run: run, context: opened, images: map[string]*source{}, pins: b.store.bases(b.req.Source),
		keys: map[*dockerfile.Stage]string{}, steps: map[*dockerfile.Stage][]stepKey{}, done: map[*dockerfile.Stage]*build{},
	}
	defer s.closeImages()
	plan, err := dockerfile.Read(ctx, text, dockerfile.Options{
		Args: b.req.BuildArgs, Architecture: runtime.GOARCH, Hidden: b.store.o.Hidden, Resolve: s.resolve,
	})
	if err != nil {
		return "", nil, nil, dockerfileError(ctx, err)
	}
	for _, note := range plan.Notes {
		if err := b.progress(sdk.TemplateProgress{Step: note}); err != nil {
			return "", nil, nil, err
		}
	}
	for _, stage := range plan.Stages {
		if err := s.keysOf(ctx, stage); err != nil {
			return "", nil, nil, dockerfileError(ctx, err)
		}
	}
	last := plan.Stages[len(plan.Stages)-1]
	found = "sha256:" + keyOf(s.keys[last], last.Env)
	if b.req.Source != "" && found != b.req.Source {
		return "", nil, nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "dockerfile", "has changed, or what it copies: it is not %s any more, which the template was pinned to; build it anew", b.req.Source)
	}
	made, err := s.make(ctx, last)
	if err != nil {
		return "", nil, nil, dockerfileError(ctx, err)
	}
	b.layers, b.left = made.layers, made.left
	bases = map[string]string{}
	for image, of := range s.images {
		bases[image] = of.digest
	}
	return found, last.Env, bases, nil
}

// dockerfileError is an error with the field that it is about.
func dockerfileError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if bad, ok := errors.AsType[*dockerfile.Error](err); ok {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "dockerfile", "cannot be built, %s", bad)
	}
	if of, ok := errors.AsType[*dockerfile.ImageError](err); ok {
		if e, coded := errors.AsType[*sdk.Error](err); coded {
			return sdk.FieldErrorf(e.Code, "dockerfile", "cannot be built, line %d: %s", of.Line, e.Message)
		}
	}
	if e, coded := errors.AsType[*sdk.Error](err); coded {
		return e
	}
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "dockerfile", "cannot be read, or its context: %s", reason(err))
	}
	return sdk.Errorf(sdk.CodeUnavailable, "the Dockerfile could not be built: %s", clipped(err.Error()))
}

// resolve looks an image up.
func (s *stages) resolve(ctx context.Context, image string) (dockerfile.Base, error) {
	found := s.images[image]
	if found == nil {
		if err := s.progress(sdk.TemplateProgress{Step: "find the image " + dockerfile.Line(image)}); err != nil {
			return dockerfile.Base{}, err
		}
		var err error
		if found, err = s.store.pull(ctx, image, s.pins[image]); err != nil {
			return dockerfile.Base{}, err
		}
		s.images[image] = found
	}
	return dockerfile.Base{Env: variables(found.env), Dir: found.dir, Shell: found.shell, Triggers: found.triggers}, nil
}

func (s *stages) closeImages() {
	for _, found := range s.images {
		found.close()
	}
}

// keyOf is the sum of what something depends on.
func keyOf(of ...any) string {
	text, _ := json.Marshal(of) // of strings, maps and lists of them
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// keysOf finds out what the steps of a stage depend on, before anything is run.
func (s *stages) keysOf(ctx context.Context, stage *dockerfile.Stage) error {
	// Rules of another version of ours may come to another layer.
	key := keyOf("nothing", s.store.o.Version)
	switch {
	case stage.From != nil:
		key = s.keys[stage.From]
	case stage.Image != "":
		key = keyOf("image", s.images[stage.Image].digest, s.store.o.Version)
	}
	for _, step := range stage.Steps {
		var made stepKey
		switch {
		case step.Run != nil:
			made.key = keyOf(key, "run", step.Run.Argv, step.Run.Env, step.Run.Dir, s.reaches(step.Run))
		case step.Copy != nil:
			c := step.Copy
			of := ""
			if c.From != nil {
				of = s.keys[c.From]
			} else {
				sum, err := c.Archive(ctx, s.context.Files(), s.context.Skip, false, io.Discard)
				if err != nil {
					return at(step.Line, err)
				}
				of, made.sum = sum, sum
			}
			mode := ""
			if c.Mode != nil {
				mode = c.Mode.String()
			}
			made.key = keyOf(key, "copy", c.From != nil, of, c.Sources, c.To, c.Into, mode, c.OfUser)
		default:
			made.key = keyOf(key, "directory", step.Directory)
		}
		key = made.key
		s.steps[stage] = append(s.steps[stage], made)
	}
	s.keys[stage] = key
	return nil
}

// reaches is what a RUN may reach, for its key: what one template has fetched is not another's
// that may not. Values of secrets are left out, which change.
func (s *stages) reaches(run *dockerfile.Run) any {
	if s.req.Network == nil || run.Offline {
		return nil
	}
	secrets := slices.Clone(s.req.Network.Secrets)
	for n := range secrets {
		secrets[n].Value = ""
	}
	return []any{s.req.Network.Rules, secrets}
}

// at gives an error of a step its line.
func at(line int, err error) error {
	if bad, ok := errors.AsType[*dockerfile.Error](err); ok && bad.Line == 0 {
		return &dockerfile.Error{Line: line, Reason: bad.Reason}
	}
	return err
}

// make has the layers of a stage.
func (s *stages) make(ctx context.Context, stage *dockerfile.Stage) (*build, error) {
	if made := s.done[stage]; made != nil {
		return made, nil
	}
	made := &build{store: s.store, req: s.req, progress: s.progress, left: s.store.o.Limits}
	switch {
	case stage.From != nil:
		from, err := s.make(ctx, stage.From)
		if err != nil {
			return nil, err
		}
		made.layers, made.left = append(made.layers, from.layers...), from.left
	case stage.Image != "":
		found := s.images[stage.Image]
		made.login = found.login
		for number, layer := range found.layers {
			if err := made.add(ctx, fmt.Sprintf("layer %d of %d", number+1, len(found.layers)), layer); err != nil {
				return nil, err
			}
		}
		made.login = nil
		// They stay for the next try, if this one fails.
		for _, layer := range made.layers {
			if err := s.store.keepStep(keyOf("layer", layer.DiffID), layer.DiffID); err != nil {
				return nil, err
			}
		}
	}
	for n, step := range stage.Steps {
		if err := s.step(ctx, made, step, s.steps[stage][n]); err != nil {
			return nil, at(step.Line, err)
		}
	}
	s.done[stage] = made
	return made, nil
}

// step adds the layer of a step: the one that there is already, or one that is made now.
func (s *stages) step(ctx context.Context, to *build, step dockerfile.Step, key stepKey) error {
	name := fmt.Sprintf("line %d: %s", step.Line, step.Text)
	if diffID := s.store.step(key.key); diffID != "" {
		if layer, err := layers.Open(s.store.layerDir(diffID), diffID); err == nil {
			if err := s.store.keepStep(key.key, diffID); err != nil {
				return err
			}
			if err := s.progress(sdk.TemplateProgress{Step: name + " is here already"}); err != nil {
				return err
			}
			return to.append(ctx, name, layer)
		}
	}
	if err := s.progress(sdk.TemplateProgress{Step: name}); err != nil {
		return err
	}
	tree, err := layers.Merge(ctx, to.layers, s.store.o.Limits)
	if err != nil {
		return to.unpackError(ctx, name, err)
	}
	var layer *layers.Layer
	switch {
	case step.Run != nil:
		layer, err = s.runStep(ctx, to, tree, step)
	case step.Copy != nil:
		layer, err = s.copyStep(ctx, to, tree, step.Copy, key.sum)
	default:
		archive := layers.Archive()
		if !tree.IsDirectory(step.Directory) {
			archive = layers.Archive(step.Directory)
		}
		layer, err = s.store.unpack(ctx, archive, "", to.left)
	}
	if _, bad := errors.AsType[*dockerfile.Error](err); bad {
		return err
	}
	if err != nil {
		return to.unpackError(ctx, name, err)
	}
	if err := s.store.keepStep(key.key, layer.DiffID); err != nil {
		return err
	}
	return to.append(ctx, name, layer)
}

// copyStep makes the layer of a COPY.
func (s *stages) copyStep(ctx context.Context, to *build, tree *layers.Tree, c *dockerfile.Copy, want string) (*layers.Layer, error) {
	files, skip := s.context.Files(), dockerfile.Skip(s.context.Skip)
	if c.From != nil {
		from, err := s.make(ctx, c.From)
		if err != nil {
			return nil, err
		}
		theirs, err := layers.Merge(ctx, from.layers, s.store.o.Limits)
		if err != nil {
			return nil, err
		}
		files, skip = theirs.Files(), nil
	}
	reader, writer := io.Pipe()
	var sum string
	var failed error
	done := make(chan struct{})
	go func() { // ends with the archive, or when the reader is closed
		defer close(done)
		sum, failed = c.Archive(ctx, files, skip, tree.IsDirectory(c.To), writer)
		writer.CloseWithError(failed)
	}()
	layer, err := s.store.unpack(ctx, reader, "", to.left)
	_ = reader.Close()
	<-done
	if bad, ok := errors.AsType[*dockerfile.Error](failed); ok {
		return nil, bad
	}
	if err == nil && want != "" && sum != want {
		return nil, &dockerfile.Error{Reason: "the context has changed while it was built"}
	}
	return layer, err
}

// runStep makes the layer of a RUN.
func (s *stages) runStep(ctx context.Context, to *build, tree *layers.Tree, step dockerfile.Step) (*layers.Layer, error) {
	if s.run == nil {
		return nil, &dockerfile.Error{Line: step.Line, Reason: "RUN cannot be done by this provider"}
	}
	scratch, err := os.MkdirTemp(s.store.path(scratchName), "run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if s.store.o.Prepare != nil {
		s.store.o.Prepare(tree)
	}
	rootfs, work := filepath.Join(scratch, rootfsName), filepath.Join(scratch, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	if _, err := tree.Write(ctx, rootfs); err != nil {
		return nil, err
	}
	archive, err := s.run(ctx, Running{
		Run: *step.Run, Line: step.Line, Rootfs: rootfs, Scratch: work, Limits: to.left, Request: s.req,
		Say: func(line string) {
			// Whoever looks on has gone, if anybody did: the build ends by its context.
			_ = s.progress(sdk.TemplateProgress{Step: fmt.Sprintf("line %d | %s", step.Line, dockerfile.Line(line))})
		},
	})
	if err != nil {
		return nil, err
	}
	layer, err := s.store.unpack(ctx, archive, "", to.left)
	return layer, errors.Join(err, archive.Close())
}

// bases are the images that a Dockerfile was built upon before, by their names.
func (s *Store) bases(source string) map[string]string {
	entries, err := os.ReadDir(s.path(imagesName))
	if err != nil || source == "" {
		return nil
	}
	for _, e := range entries {
		if image, err := s.load("sha256:" + e.Name()); err == nil && image.Source == source {
			return image.Bases
		}
	}
	return nil
}

// stepPath is where it stands which layer a step has made.
func (s *Store) stepPath(key string) string { return s.path(stepsName, key) }

// step is the layer that a step has made before; "" if it is not known.
func (s *Store) step(key string) string {
	text, err := os.ReadFile(s.stepPath(key))
	if err != nil || !digestForm.Match(text) {
		return ""
	}
	return strings.TrimSpace(string(text))
}
