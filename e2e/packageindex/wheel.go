// Package packageindex has packages for tests: wheels and archives of npm that it
// makes itself, and indexes that serve them on the loopback address.
package packageindex

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"
)

// Wheel is a package with one module, and the name of its file.
func Wheel(t testing.TB, name, version, module string) (file string, content []byte) {
	t.Helper()
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	for _, f := range []struct{ path, text string }{
		{name + ".py", module},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", fmt.Sprintf("%s.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n", name, info, info, info)},
	} {
		w, err := archive.Create(f.path)
		assert.NilError(t, err)
		_, err = w.Write([]byte(f.text))
		assert.NilError(t, err)
	}
	assert.NilError(t, archive.Close())
	return fmt.Sprintf("%s-%s-py3-none-any.whl", name, version), b.Bytes()
}

// npmArchive is a package of npm with one file, and its digest as npm wants it.
func npmArchive(t testing.TB, name, version, module string) (content []byte, integrity string) {
	t.Helper()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	archive := tar.NewWriter(packed)
	for _, f := range []struct{ path, text string }{
		{"package/package.json", fmt.Sprintf(`{"name": %q, "version": %q, "main": "index.js"}`, name, version)},
		{"package/index.js", module},
	} {
		assert.NilError(t, archive.WriteHeader(&tar.Header{Name: f.path, Mode: 0o644, Size: int64(len(f.text))}))
		_, err := archive.Write([]byte(f.text))
		assert.NilError(t, err)
	}
	assert.NilError(t, archive.Close())
	assert.NilError(t, packed.Close())
	digest := sha512.Sum512(b.Bytes())
	return b.Bytes(), "sha512-" + base64.StdEncoding.EncodeToString(digest[:])
}
