package imagestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxLayers of an image; Docker allows 127.
const maxLayers = 256

// source is an image that was found, or a root file system as if it were one of a single
// layer.
type source struct {
	// digest is what it is pinned by; "" for a root file system, whose sum is known when
	// it was read.
	digest string
	// env has the variables of the image, NAME=value.
	env    []string
	layers []sourceLayer
	// What is built upon it begins in dir, with the words of shell; triggers says that it has
	// instructions for that.
	dir      string
	shell    []string
	triggers bool
	// close is called when no layer is read any more; nil for nothing to do.
	close func()
	// login that it is had with; nil for none.
	login *Login
}

// sourceLayer is a layer that can be read.
type sourceLayer struct {
	// diffID of its archive, uncompressed; "" where nobody has said it. It is what the
	// image says, which nobody has verified.
	diffID string
	open   func() (io.ReadCloser, error)
	// registry that has it under a digest, which is that of what it sends; "" for a layer
	// that is not from one.
	registry, digest string
	// sum is the digest of what was read of it. nil without a registry.
	sum func() string
}

// find finds the image that a request names. pin is a digest that was found before.
func (s *Store) find(ctx context.Context, from, rootfs, pin string) (*source, error) {
	if rootfs != "" {
		return findLocal(rootfs, pin)
	}
	return s.pull(ctx, from, pin)
}

// platform is what sandboxes of this machine can run.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// pull finds an image in a registry.
func (s *Store) pull(ctx context.Context, from, pin string) (*source, error) {
	ref, err := name.ParseReference(from)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "is no name of an image: write registry/repository:tag")
	}
	if pin != "" {
		ref = ref.Context().Digest(pin)
	}
	through := reach(ref.Context().Registry)
	if login, has := s.o.Logins[strings.ToLower(ref.Context().RegistryStr())]; has {
		through.login = &login
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithPlatform(platform()), remote.WithAuth(through.login.authenticator()),
		remote.WithUserAgent("sandbox-broker"), remote.WithTransport(through),
	}
	found, err := ofRemote(ref, s.o.Limits.Bytes, options)
	if err != nil {
		through.close()
		return nil, pullError(ctx, from, through, err)
	}
	found.close, found.login = through.close, through.login
	return found, nil
}

// ofRemote is an image of a registry, whose layers have at most so many bytes.
func ofRemote(ref name.Reference, most int64, options []remote.Option) (*source, error) {
	image, err := remote.Image(ref, options...)
	if err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	found, err := ofImage(image)
	if err != nil {
		return nil, err
	}
	found.digest = digest.String()
	compressed, err := image.Layers()
	if err != nil {
		return nil, err
	}
	for i, layer := range compressed {
		size, err := layer.Size()
		if err != nil {
			return nil, err
		}
		if most -= size; size < 0 || most < 0 {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be used: its layers are too large")
		}
		summed := &summedLayer{Layer: layer, sum: sha256.New()}
		open, err := partial.CompressedToLayer(summed)
		if err != nil {
			return nil, err
		}
		of, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		l := &found.layers[i]
		l.registry, l.digest, l.open, l.sum = ref.Context().RegistryStr(), of.String(), open.Uncompressed, summed.digest
	}
	return found, nil
}

// summedLayer sums up what is read of a layer as it is sent.
type summedLayer struct {
	v1.Layer
	sum hash.Hash
}

// Compressed implements v1.Layer.
func (l *summedLayer) Compressed() (io.ReadCloser, error) {
	from, err := l.Layer.Compressed()
	if err != nil {
		return nil, err
	}
	l.sum.Reset()
	return readCloser{io.TeeReader(from, l.sum), from}, nil
}

func (l *summedLayer) digest() string { return "sha256:" + hex.EncodeToString(l.sum.Sum(nil)) }

// pullError says in words for the operator why an image cannot be had.
func pullError(ctx context.Context, from string, of *registry, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, coded := errors.AsType[*sdk.Error](err); coded {
		return e // around it is the address, which the registry has made
	}
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		switch refused.StatusCode {
		case http.StatusNotFound:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the registry has no image %s", from)
		case http.StatusUnauthorized, http.StatusForbidden:
			if of.login != nil {
				return sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the registry %s refuses the login that there is for it, or does not give out %s to that user", of.named, from)
			}
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the registry does not give out %s to us: it does not exist, or needs a login, which a block registry of the provider has", from)
		}
		return sdk.Errorf(sdk.CodeConnectionFailed, "the registry refused to give out %s with the status %d", from, refused.StatusCode)
	}
	if strings.Contains(err.Error(), "no child with platform") {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the image %s does not exist for %s, which this machine is", from, platform().String())
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return sdk.Errorf(sdk.CodeConnectionFailed, "the registry of %s was not reached: %s", from, dns)
	}
	return sdk.Errorf(sdk.CodeConnectionFailed, "the image %s could not be had: %s", from, of.login.said(err))
}

// clipped is a text of somebody else in an error.
func clipped(text string) string {
	const most = 300
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// ofImage is what an image says of itself.
func ofImage(image v1.Image) (*source, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("read the manifest of the image: %w", err)
	}
	// The configuration is read whole, up to the size that the manifest names.
	if size := manifest.Config.Size; size < 0 || size > maxConfig {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be used: the configuration of the image has more than %d bytes", maxConfig)
	}
	if len(manifest.Layers) > maxLayers {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the image has more than %d layers", maxLayers)
	}
	// A layer may name other places to get it from, which nobody has chosen here.
	for _, d := range manifest.Layers {
		if len(d.URLs) > 0 || !d.MediaType.IsDistributable() {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the image has a layer that is not in the registry")
		}
	}
	raw, err := image.RawConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of the image: %w", err)
	}
	// In the OCI layout nobody else verifies it, and an image is pinned by its manifest.
	sum, err := v1.Hasher(manifest.Config.Digest.Algorithm)
	if err != nil {
		return nil, fmt.Errorf("verify the configuration of the image: %w", err)
	}
	sum.Write(raw)
	if hex.EncodeToString(sum.Sum(nil)) != manifest.Config.Digest.Hex {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be used: the configuration of the image is not the one that its manifest names")
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read the configuration of the image: %w", err)
	}
	if config.OS != "linux" && config.OS != "" || config.Architecture != runtime.GOARCH && config.Architecture != "" {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the image is for %s/%s, and this machine is %s", clipped(config.OS), clipped(config.Architecture), platform().String())
	}
	compressed, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("read the layers of the image: %w", err)
	}
	if len(compressed) != len(config.RootFS.DiffIDs) {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "the image has %d layers and names %d", len(compressed), len(config.RootFS.DiffIDs))
	}
	found := &source{
		env: config.Config.Env, dir: config.Config.WorkingDir, shell: config.Config.Shell, triggers: len(config.Config.OnBuild) > 0,
	}
	for i, layer := range compressed {
		found.layers = append(found.layers, sourceLayer{diffID: config.RootFS.DiffIDs[i].String(), open: layer.Uncompressed})
	}
	return found, nil
}

// digestOf is the sum over what is not pinned by a registry: the sums of its layers.
func digestOf(diffIDs []string) string {
	sum := sha256.Sum256([]byte(strings.Join(diffIDs, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// variables are NAME=value as a map; what has no name is left out.
func variables(env []string) map[string]string {
	all := map[string]string{}
	for _, variable := range env {
		if name, value, ok := strings.Cut(variable, "="); ok && name != "" && !strings.ContainsRune(variable, 0) {
			all[name] = value
		}
	}
	return all
}

// maxSearched is how many directories of PATH are looked into: the image has named them.
const maxSearched = 64

// searched are the directories in which programs of an image are looked for.
func searched(env map[string]string) []string {
	dirs := slices.DeleteFunc(strings.Split(env["PATH"], ":"), func(dir string) bool { return !strings.HasPrefix(dir, "/") })
	dirs = dirs[:min(len(dirs), maxSearched)]
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
