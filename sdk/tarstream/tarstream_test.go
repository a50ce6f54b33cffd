package tarstream_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/tarstream"
)

// archive has entries of every kind, and files of zeros, which look like the end.
func archive(t *testing.T) (content []byte, ends []int) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}},
		{Name: "directory/", Typeflag: tar.TypeDir},
		{Name: "empty", Typeflag: tar.TypeReg},
		{Name: "zeros", Typeflag: tar.TypeReg, Size: 2048},
		{Name: "some", Typeflag: tar.TypeReg, Size: 700},
		{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "some"},
		{Name: strings.Repeat("long/", 60) + "é", Typeflag: tar.TypeReg, Size: 1},
	} {
		assert.NilError(t, w.Flush())
		ends = append(ends, b.Len())
		assert.NilError(t, w.WriteHeader(&h))
		_, err := w.Write(make([]byte, h.Size))
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Flush())
	ends = append(ends, b.Len())
	assert.NilError(t, w.Close())
	return b.Bytes(), ends
}

func read(content io.Reader) (entries int, err error) {
	for r := tarstream.NewReader(content); ; entries++ {
		switch _, err := r.Next(); {
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			return entries, err
		}
		if entries%2 == 0 { // else it is passed over
			if _, err := io.Copy(io.Discard, r); err != nil {
				return entries, err
			}
		}
	}
}

func TestAWholeArchiveIsWhole(t *testing.T) {
	content, _ := archive(t)
	entries, err := read(bytes.NewReader(content))
	assert.NilError(t, err)
	assert.Equal(t, entries, 7)
	for name, nothing := range map[string]int{"of nothing": 1024, "as tar pads it": 10240} {
		entries, err = read(bytes.NewReader(make([]byte, nothing)))
		assert.NilError(t, err, name)
		assert.Equal(t, entries, 0)
	}
	_, err = read(io.MultiReader(bytes.NewReader(content), bytes.NewReader(make([]byte, 8192))))
	assert.NilError(t, err)
}

func TestAnArchiveThatWasCutIsNot(t *testing.T) {
	content, ends := archive(t)
	assert.Equal(t, len(ends), 8)
	for _, length := range ends { // between two entries, or before the first
		_, err := read(bytes.NewReader(content[:length]))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d", length)
	}
	for length := range ends[len(ends)-1] { // anywhere
		_, err := read(bytes.NewReader(content[:length]))
		assert.Assert(t, err != nil, "%d", length)
	}
}
