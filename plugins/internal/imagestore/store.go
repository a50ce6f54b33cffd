package imagestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/filelock"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/layers"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Names in the directory of a store.
const (
	layersName  = "layers"  // by the digits of their sums
	imagesName  = "images"  // by the digits of theirs
	ownersName  = "owners"  // by owner, with a file for each image that it wants
	digestsName = "digests" // which layers registries have under which digests
	stepsName   = "steps"   // which layers steps of Dockerfiles have made
	scratchName = "scratch" // what is being made
	// storeLock is shared by whoever makes something, and had alone by whoever removes
	// something.
	storeLock = "lock"
	// recordName and rootfsName are in the directory of an image, as is useLock.
	recordName = "record.json"
	rootfsName = "rootfs"
	useLock    = "use"
)

// Options of a Store.
type Options struct {
	// Dir of the store, which need not exist.
	Dir string
	// Owner is who wants images: a broker and its provider. What nobody wants any more is
	// removed.
	Owner string
	// Logins of registries by their RegistryName; nil for none.
	Logins map[string]Login
	// Finish changes the root file system before it is written; what it does is the same
	// for every image of a Version of it.
	Finish  func(*layers.Tree)
	Version string
	// Prepare is Finish for a root file system that a RUN of a Dockerfile changes.
	Prepare func(*layers.Tree)
	// Hidden are directories of which no sandbox sees what the image has there.
	Hidden []string
	// Limits of all layers of an image together, those of packages included.
	Limits layers.Limits
}

// Store is a directory with images.
type Store struct {
	o        Options
	building keylock.Locks[string] // by registry and layer
	mu       sync.Mutex            // of what is used
	uses     map[string]*use
}

// Open makes the store's directory, where it is missing, and returns it.
func Open(o Options) (*Store, error) {
	for _, dir := range []string{"", layersName, imagesName, digestsName, stepsName, scratchName, ownersName, filepath.Join(ownersName, ownerName(o.Owner))} {
		if err := os.MkdirAll(filepath.Join(o.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of the templates: %w", err)
		}
	}
	// Others may not reach what is in it: names of users mean nothing there.
	if err := os.Chmod(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("close the directory of the templates to others: %w", err)
	}
	if o.Limits == (layers.Limits{}) {
		o.Limits = layers.DefaultLimits()
	}
	return &Store{o: o, uses: map[string]*use{}}, nil
}

// ownerName is an owner as the name of a directory.
func ownerName(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// Image is what a build has made.
type Image struct {
	sdk.BuiltTemplate
	// Request that it was built for, but for the Source.
	Request sdk.BuildTemplateRequest
	// Env has the variables of the image, and those of the request over them.
	Env map[string]string
	// Interpreters are paths in the sandbox.
	Interpreters map[sdk.Language]string
	// LayerIDs are the layers that it needs, the lowest first.
	LayerIDs []string
	// Bases are the images that a Dockerfile names, with their digests.
	Bases map[string]string `json:",omitempty"`
	// Version of Options.Finish.
	Version string

	dir string
}

// Rootfs is the directory with the root file system.
func (i *Image) Rootfs() string { return filepath.Join(i.dir, rootfsName) }

// Installer makes a further layer with packages: it returns its archive, which the caller
// closes. rootfs is that of the image without them.
type Installer func(ctx context.Context, without *Image, packages []string) (io.ReadCloser, error)

// Build returns an image for a request: one that there is already, if the request names
// its source; else one that is made now.
func (s *Store) Build(ctx context.Context, req sdk.BuildTemplateRequest, tools Tools, progress func(sdk.TemplateProgress) error) (*Image, error) {
	shared, err := filelock.Take(ctx, s.path(storeLock), false)
	if err != nil {
		return nil, err
	}
	defer shared.Release()
	if req.Source != "" {
		if image := s.built(req); image != nil {
			return image, s.want(image.Image)
		}
	}
	b := &build{store: s, req: req, progress: progress, left: s.o.Limits}
	var source string
	var env map[string]string
	if req.Dockerfile != "" {
		source, env, b.bases, err = b.ofDockerfile(ctx, tools.Run)
	} else {
		source, env, err = b.ofImage(ctx)
	}
	if err != nil {
		return nil, err
	}
	image, err := b.write(ctx, source, env, nil)
	if err != nil || len(req.Packages) == 0 {
		return image, err
	}
	return b.addPackages(ctx, image, tools.Install)
}

// ofImage has the layers of an image.
func (b *build) ofImage(ctx context.Context) (source string, env map[string]string, err error) {
	if err := b.progress(sdk.TemplateProgress{Step: "find the image"}); err != nil {
		return "", nil, err
	}
	found, err := b.store.find(ctx, b.req.From, b.req.Rootfs, b.req.Source)
	if err != nil {
		return "", nil, err
	}
	if found.close != nil {
		defer found.close()
	}
	b.login = found.login
	for number, layer := range found.layers {
		step := fmt.Sprintf("layer %d of %d", number+1, len(found.layers))
		if err := b.add(ctx, step, layer); err != nil {
			return "", nil, err
		}
	}
	if source = found.digest; source == "" {
		source = digestOf(b.ids())
	}
	if b.req.Source != "" && source != b.req.Source {
		return "", nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "has changed: it is not %s any more, which the template was pinned to; build it anew", b.req.Source)
	}
	return source, variables(found.env), nil
}

// build is one call of Build.
type build struct {
	store    *Store
	req      sdk.BuildTemplateRequest
	progress func(sdk.TemplateProgress) error
	layers   []*layers.Layer
	left     layers.Limits // for further layers
	login    *Login        // that its layers are had with; nil for none
	bases    map[string]string
	// wanted says that the last image that was written was wanted before.
	wanted bool
}

// want is Store.want, and notes whether it changes anything.
func (b *build) want(digest string) error {
	_, err := os.Lstat(b.store.wanted(digest))
	b.wanted = err == nil
	return b.store.want(digest)
}

func (b *build) ids() (ids []string) {
	for _, layer := range b.layers {
		ids = append(ids, layer.DiffID)
	}
	return ids
}

// add unpacks a layer, unless that was done before.
func (b *build) add(ctx context.Context, step string, from sourceLayer) error {
	s := b.store
	if from.digest != "" {
		// Only those wait who wait for the same registry: another one may take its time.
		unlock, err := s.building.Take(ctx, from.registry+" "+from.digest)
		if err != nil {
			return err
		}
		defer unlock()
		// What an image says of its layers is no proof that it has them.
		if s.diffID(from.registry, from.digest) == from.diffID {
			if layer, err := layers.Open(s.layerDir(from.diffID), from.diffID); err == nil {
				if err := b.progress(sdk.TemplateProgress{Step: step + " is here already"}); err != nil {
					return err
				}
				return b.append(ctx, step, layer)
			}
		}
	}
	if err := b.progress(sdk.TemplateProgress{Step: step}); err != nil {
		return err
	}
	archive, err := from.open()
	if err != nil {
		if e, coded := errors.AsType[*sdk.Error](err); coded {
			return e
		}
		return sdk.Errorf(sdk.CodeConnectionFailed, "%s could not be had: %s", step, b.login.said(err))
	}
	told := &telling{Reader: archive, every: tellEvery, tell: func(done int64) error {
		return b.progress(sdk.TemplateProgress{Step: step, Done: done})
	}}
	layer, err := s.unpack(ctx, told, from.diffID, b.left)
	err = errors.Join(err, archive.Close())
	if err == nil && from.digest != "" && from.sum() == from.digest {
		err = s.remember(from.registry, from.digest, layer.DiffID)
	}
	if err != nil {
		return b.unpackError(ctx, step, err)
	}
	return b.append(ctx, step, layer)
}

// append takes a layer, if the image may still have it.
func (b *build) append(ctx context.Context, step string, layer *layers.Layer) error {
	b.layers, b.left = append(b.layers, layer), b.left.Without(layer.Used())
	if b.left.Entries < 0 || b.left.Bytes < 0 || b.left.Names < 0 {
		return b.unpackError(ctx, step, &layers.InvalidError{Reason: "the image has more than it may have: " + b.store.o.Limits.String()})
	}
	return nil
}

func (b *build) unpackError(ctx context.Context, step string, err error) error {
	field := sourceField(b.req)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if bad, ok := errors.AsType[*layers.InvalidError](err); ok {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "cannot be used, %s: %s", step, clipped(b.login.without(bad.Reason)))
	}
	if e, coded := errors.AsType[*sdk.Error](err); coded {
		return e
	}
	return sdk.Errorf(sdk.CodeUnavailable, "%s could not be unpacked: %s", step, b.login.said(err))
}

// tellEvery is after how many bytes a build tells how far it is.
const tellEvery = 16 << 20

// telling is a reader that tells how much was read.
type telling struct {
	io.Reader
	tell              func(done int64) error
	every, done, last int64
}

func (t *telling) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if t.done += int64(n); err == nil && t.done-t.last >= t.every {
		t.last = t.done
		err = t.tell(t.done)
	}
	return n, err
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, parts...)...)
}

func digits(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

func (s *Store) layerDir(diffID string) string { return s.path(layersName, digits(diffID)) }

// unpack keeps a layer. want is its sum, if that is known.
func (s *Store) unpack(ctx context.Context, archive io.Reader, want string, limits layers.Limits) (*layers.Layer, error) {
	scratch, err := os.MkdirTemp(s.path(scratchName), "layer-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	layer, err := layers.Unpack(ctx, archive, scratch, limits)
	if err != nil {
		return nil, err
	}
	if want != "" && layer.DiffID != want {
		return nil, &layers.InvalidError{Reason: fmt.Sprintf("it is not what the image names: its sum is %s, and not %s", layer.DiffID, want)}
	}
	if err := syncAll(scratch); err != nil {
		return nil, err
	}
	dir := s.layerDir(layer.DiffID)
	if err := os.Rename(scratch, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return layers.Open(dir, layer.DiffID)
}

// write makes an image of the layers, the last of which has the packages.
func (b *build) write(ctx context.Context, source string, env map[string]string, packages []string) (*Image, error) {
	s := b.store
	tree, err := layers.Merge(ctx, b.layers, s.o.Limits)
	if err != nil {
		return nil, b.unpackError(ctx, "the layers together", err)
	}
	image := &Image{Request: recorded(b.req), Env: env, Interpreters: interpreters(tree, env), LayerIDs: b.ids(), Bases: b.bases, Version: s.o.Version}
	image.Request.Packages = packages
	image.Name, image.Source, image.BuiltAt = b.req.Name, source, time.Now().UTC()
	for _, language := range []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash} {
		if image.Interpreters[language] != "" {
			image.Languages = append(image.Languages, language)
		}
	}
	for name, value := range b.req.Env {
		image.Env[name] = value
	}
	if err := image.check(b.req); err != nil {
		return nil, err
	}
	if image.Image, err = image.sum(); err != nil {
		return nil, err
	}
	image.dir = s.path(imagesName, digits(image.Image))
	if there, err := s.load(image.Image); err == nil {
		return there, b.want(there.Image)
	}
	if s.o.Finish != nil {
		s.o.Finish(tree)
	}
	if err := b.progress(sdk.TemplateProgress{Step: "write the root file system"}); err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(s.path(scratchName), "image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	if image.Bytes, err = tree.Write(ctx, filepath.Join(scratch, rootfsName)); err != nil {
		return nil, b.unpackError(ctx, "the layers together", err)
	}
	record, err := json.Marshal(image)
	if err != nil {
		return nil, err
	}
	// It may have variables that are secret.
	if err := ondisk.WriteFile(filepath.Join(scratch, recordName), record, 0o600); err != nil {
		return nil, err
	}
	if err := syncAll(scratch); err != nil {
		return nil, err
	}
	// What is wanted from now on is not removed between the two.
	if err := b.want(image.Image); err != nil {
		return nil, err
	}
	err = os.Rename(scratch, image.dir)
	if errors.Is(err, fs.ErrExist) {
		if _, lacking := s.load(image.Image); lacking == nil {
			return image, nil // somebody was faster
		}
		// It is what was left when an image was removed half.
		if err = os.RemoveAll(image.dir); err == nil {
			err = os.Rename(scratch, image.dir)
		}
	}
	if err != nil {
		return nil, err
	}
	return image, ondisk.SyncDir(s.path(imagesName))
}

// recorded is what an image is the same for.
func recorded(req sdk.BuildTemplateRequest) sdk.BuildTemplateRequest {
	req.Source, req.Network = "", nil
	return req
}

// check refuses an image of which no sandbox could run anything.
func (i *Image) check(req sdk.BuildTemplateRequest) error {
	field := sourceField(req)
	switch {
	case len(i.Languages) == 0:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "has no python3, node or bash in it: nothing could be run in its sandboxes")
	case len(req.Packages) > 0 && i.Interpreters[sdk.Python] == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "packages", "cannot be installed: there is no python3 in the image")
	case req.Start != "" && i.Interpreters[sdk.Bash] == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "start", "cannot be run: there is no bash in the image")
	case req.Ready != "" && i.Interpreters[sdk.Bash] == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "ready", "cannot be run: there is no bash in the image")
	}
	return nil
}

// sourceField is where a request says what it is made of.
func sourceField(req sdk.BuildTemplateRequest) string {
	switch {
	case req.Dockerfile != "":
		return "dockerfile"
	case req.Rootfs != "":
		return "rootfs"
	default:
		return "from"
	}
}

// programs by which a language is run, the preferred first.
var programs = map[sdk.Language][]string{sdk.Python: {"python3"}, sdk.JavaScript: {"node", "nodejs"}, sdk.Bash: {"bash"}}

// interpreters looks for the languages in a root file system.
func interpreters(tree *layers.Tree, env map[string]string) map[sdk.Language]string {
	found := map[sdk.Language]string{}
	for language, names := range programs {
		for _, name := range names {
			for _, dir := range searched(env) {
				path := dir + "/" + name
				if found[language] == "" && tree.Program(path) {
					found[language] = path
				}
			}
		}
	}
	return found
}

// sum is over all that sandboxes of the image depend on.
func (i *Image) sum() (string, error) {
	text, err := json.Marshal(struct {
		Request sdk.BuildTemplateRequest
		Source  string
		Layers  []string
		Version string
	}{i.Request, i.Source, i.LayerIDs, i.Version})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// addPackages makes the image with packages of the one without.
func (b *build) addPackages(ctx context.Context, without *Image, install Installer) (_ *Image, err error) {
	if !b.wanted {
		defer func() { err = errors.Join(err, b.store.Remove(context.WithoutCancel(ctx), without.Image)) }()
	}
	if err := b.progress(sdk.TemplateProgress{Step: "install packages"}); err != nil {
		return nil, err
	}
	archive, err := install(ctx, without, b.req.Packages)
	if err != nil {
		return nil, err
	}
	err = b.add(ctx, "the layer of the packages", sourceLayer{open: func() (io.ReadCloser, error) { return archive, nil }})
	if err != nil {
		return nil, err
	}
	return b.write(ctx, without.Source, maps.Clone(without.Env), b.req.Packages)
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// load reads the record of an image.
func (s *Store) load(digest string) (*Image, error) {
	if !digestForm.MatchString(digest) {
		return nil, fs.ErrNotExist
	}
	dir := s.path(imagesName, digits(digest))
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return nil, err
	}
	image := &Image{dir: dir}
	if err := json.Unmarshal(text, image); err != nil {
		return nil, fmt.Errorf("the record of the template %s: %w", digest, err)
	}
	if info, err := os.Stat(image.Rootfs()); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("the root file system of the template %s is not there any more: %w", digest, fs.ErrNotExist)
	}
	return image, nil
}

// built returns the newest image that was built for the same, whoever wanted it.
func (s *Store) built(req sdk.BuildTemplateRequest) *Image {
	entries, err := os.ReadDir(s.path(imagesName))
	if err != nil {
		return nil
	}
	source := req.Source
	asked, err := json.Marshal(recorded(req))
	if err != nil {
		return nil
	}
	var newest *Image
	for _, e := range entries {
		image, err := s.load("sha256:" + e.Name())
		if err != nil || image.Source != source || image.Version != s.o.Version {
			continue
		}
		if was, err := json.Marshal(image.Request); err != nil || string(was) != string(asked) {
			continue
		}
		if newest == nil || image.BuiltAt.After(newest.BuiltAt) {
			newest = image
		}
	}
	return newest
}

// syncAll has what was written to a directory's file system on the disk: a name that is
// there after a loss of power has its content.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
