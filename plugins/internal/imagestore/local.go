package imagestore

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	slashpath "path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// findLocal finds an image, or a root file system, in a directory or an archive.
func findLocal(path, pin string) (*source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "cannot be read: %s", reason(err))
	}
	var found *source
	switch {
	case info.IsDir() && has(path, "oci-layout"):
		found, err = ofLayout(path)
	case info.IsDir():
		found, err = ofDirectory(path), nil
	case info.Mode().IsRegular():
		found, err = ofArchive(path)
	default:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "is neither a directory nor an archive")
	}
	if err != nil {
		if e, coded := errors.AsType[*sdk.Error](err); coded {
			e.Field = "rootfs"
			return nil, e
		}
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "cannot be used: %s", clipped(err.Error()))
	}
	if pin != "" && found.digest != "" && found.digest != pin {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "has changed: it is not %s any more, which the template was pinned to; build it anew", pin)
	}
	return found, nil
}

func has(dir, file string) bool {
	_, err := os.Lstat(filepath.Join(dir, file))
	return err == nil
}

func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// ofLayout is the one image for this machine of a directory in the OCI layout.
func ofLayout(path string) (*source, error) {
	// The library reads files whole.
	if err := smallFile(filepath.Join(path, "index.json"), maxManifest); err != nil {
		return nil, err
	}
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return nil, err
	}
	image, err := oneOf(path, index, 0)
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	if err := smallFile(blobOf(path, manifest.Config.Digest), maxConfig); err != nil {
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
	return found, nil
}

// smallFile is an error for what is no file of at most so many bytes.
func smallFile(path string, most int64) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return fmt.Errorf("%s is no file of at most %d bytes", filepath.Base(path), most)
	}
	return nil
}

// blobOf is where a directory in the OCI layout has what a digest names.
func blobOf(path string, digest v1.Hash) string {
	return filepath.Join(path, "blobs", digest.Algorithm, digest.Hex)
}

// oneOf is the image of an index that is for this machine.
func oneOf(path string, index v1.ImageIndex, depth int) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		fits := d.Platform == nil || d.Platform.Satisfies(platform())
		if (!d.MediaType.IsImage() || !fits) && (!d.MediaType.IsIndex() || depth > 0) {
			continue
		}
		if err := smallFile(blobOf(path, d.Digest), maxManifest); err != nil {
			return nil, err
		}
		if d.MediaType.IsImage() {
			return index.Image(d.Digest)
		}
		nested, err := index.ImageIndex(d.Digest)
		if err != nil {
			return nil, err
		}
		if image, err := oneOf(path, nested, depth+1); err == nil {
			return image, nil
		}
	}
	return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "there is no image for %s in it", platform().String())
}

// ofArchive is an image as `docker save` writes it, or a root file system.
func ofArchive(path string) (*source, error) {
	kind, err := archiveKind(path)
	if err != nil {
		return nil, err
	}
	if kind != "manifest.json" {
		return &source{layers: []sourceLayer{{open: func() (io.ReadCloser, error) { return openArchive(path) }}}}, nil
	}
	if err := smallSaved(path); err != nil {
		return nil, err
	}
	image, err := tarball.Image(func() (io.ReadCloser, error) { return openArchive(path) }, nil)
	if err != nil {
		return nil, err
	}
	// Its manifest would be one of layers that are compressed in some way: the
	// configuration names the same contents.
	digest, err := image.ConfigName()
	if err != nil {
		return nil, err
	}
	found, err := ofImage(image)
	if err != nil {
		return nil, err
	}
	found.digest = digest.String()
	return found, nil
}

// smallSaved is an error for an archive of `docker save` that says more of its image than
// fits into memory: the library reads it whole.
func smallSaved(path string) error {
	var manifest tarball.Manifest
	err := inArchive(path, "manifest.json", maxManifest, func(content io.Reader) error {
		return json.NewDecoder(content).Decode(&manifest)
	})
	if err != nil {
		return err
	}
	if len(manifest) != 1 {
		return fmt.Errorf("it has %d images, and not one", len(manifest))
	}
	if len(manifest[0].Layers) > maxLayers {
		return fmt.Errorf("the image has more than %d layers", maxLayers)
	}
	return inArchive(path, manifest[0].Config, maxConfig, func(io.Reader) error { return nil })
}

// inArchive reads the first entry of a name, if it is a file of at most so many bytes.
func inArchive(path, name string, most int64, read func(io.Reader) error) error {
	file, err := openArchive(path)
	if err != nil {
		return err
	}
	defer file.Close()
	archive := tar.NewReader(file)
	for range maxLooked {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("it has no %q", clipped(name))
		case err != nil:
			return fmt.Errorf("it is no proper tar archive: %w", err)
		case slashpath.Clean(header.Name) != slashpath.Clean(name):
			continue
		case header.Typeflag != tar.TypeReg || header.Size > most:
			return fmt.Errorf("%q is no file of at most %d bytes", clipped(name), most)
		}
		return read(archive)
	}
	return fmt.Errorf("it has no %q among its first entries", clipped(name))
}

// maxLooked is how many entries of an archive are looked at for what it is.
const maxLooked = 100_000

// archiveKind is manifest.json for an image; an archive without one is a root file system.
func archiveKind(path string) (string, error) {
	file, err := openArchive(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	archive := tar.NewReader(file)
	for range maxLooked {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("it is no proper tar archive: %w", err)
		}
		if header.Name == "manifest.json" {
			return header.Name, nil
		}
	}
	return "", nil
}

// openArchive opens an archive, which may be compressed with gzip.
func openArchive(path string) (io.ReadCloser, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewReader(file)
	if magic, _ := buffered.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return readCloser{buffered, file}, nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return readCloser{unzipped, file}, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// ofDirectory is a root file system in a directory, as an archive that is the same for the
// same contents.
func ofDirectory(path string) *source {
	return &source{layers: []sourceLayer{{open: func() (io.ReadCloser, error) {
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, err
		}
		reader, writer := io.Pipe()
		done := make(chan struct{})
		go func() { // ends when the directory is read, or the reader closed
			defer close(done)
			defer root.Close()
			writer.CloseWithError(archiveDirectory(root, writer))
		}()
		return directoryArchive{reader, done}, nil
	}}}}
}

// directoryArchive is closed when nobody reads the directory any more.
type directoryArchive struct {
	*io.PipeReader
	done <-chan struct{}
}

func (a directoryArchive) Close() error {
	err := a.PipeReader.Close()
	<-a.done
	return err
}

// archiveDirectory writes what is below a directory as a tar archive. It follows no links.
func archiveDirectory(root *os.Root, to io.Writer) error {
	archive := tar.NewWriter(to)
	err := fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		switch {
		case info.IsDir(), info.Mode().IsRegular():
		case info.Mode()&fs.ModeSymlink != 0:
			if target, err = root.Readlink(path); err != nil {
				return err
			}
		default:
			return nil // a device, a pipe or a socket
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		header.Name = path
		// What changes by itself is no part of the contents.
		header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
		header.Uname, header.Gname, header.PAXRecords, header.Format = "", "", nil, tar.FormatPAX
		if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := root.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.CopyN(archive, file, header.Size)
		return err
	})
	return errors.Join(err, archive.Close())
}
