package runsc

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"gotest.tools/v3/assert"
)

func TestChangesBecomeALayer(t *testing.T) {
	opaque := map[string]string{opaqueRecord: "y"}
	for name, test := range map[string]struct {
		given tar.Header
		want  []string
	}{
		"the root":                    {tar.Header{Typeflag: tar.TypeDir, Name: "./"}, nil},
		"a directory":                 {tar.Header{Typeflag: tar.TypeDir, Name: "./a/"}, []string{"5 a "}},
		"one in the place of another": {tar.Header{Typeflag: tar.TypeDir, Name: "./a/", PAXRecords: opaque}, []string{"5 a ", "0 a/.wh..wh..opq "}},
		"a file":                      {tar.Header{Typeflag: tar.TypeReg, Name: "./a/b", Size: 4}, []string{"0 a/b text"}},
		"what was removed":            {tar.Header{Typeflag: tar.TypeChar, Name: "./a/b"}, []string{"0 a/.wh.b "}},
		"a device":                    {tar.Header{Typeflag: tar.TypeChar, Name: "./a/b", Devmajor: 1, Devminor: 5}, []string{"3 a/b "}},
		"a hard link":                 {tar.Header{Typeflag: tar.TypeLink, Name: "./a", Linkname: "./b/c"}, []string{"1 a > b/c"}},
		"a link out":                  {tar.Header{Typeflag: tar.TypeSymlink, Name: "./a", Linkname: "../../x"}, []string{"2 a > ../../x"}},
		"a name that removes":         {tar.Header{Typeflag: tar.TypeReg, Name: "./.wh.a"}, nil},
		"a name that empties":         {tar.Header{Typeflag: tar.TypeReg, Name: "./a/.wh..wh..opq"}, nil},
		"a file that empties":         {tar.Header{Typeflag: tar.TypeReg, Name: "./a", PAXRecords: opaque}, []string{"0 a "}},
		"what is mounted":             {tar.Header{Typeflag: tar.TypeDir, Name: "./proc/"}, nil},
		"what is below":               {tar.Header{Typeflag: tar.TypeReg, Name: "./proc/1/a", Size: 4}, nil},
		"what begins alike":           {tar.Header{Typeflag: tar.TypeReg, Name: "./process"}, []string{"0 process "}},
		"out of it":                   {tar.Header{Typeflag: tar.TypeReg, Name: "./../../etc/passwd"}, []string{"0 ../../etc/passwd "}},
	} {
		t.Run(name, func(t *testing.T) {
			var given, made bytes.Buffer
			w := tar.NewWriter(&given)
			test.given.Format = tar.FormatPAX
			assert.NilError(t, w.WriteHeader(&test.given))
			if test.given.Size > 0 {
				_, err := w.Write([]byte("text"))
				assert.NilError(t, err)
			}
			assert.NilError(t, w.Close())
			assert.NilError(t, Layer(&given, &made, []string{"proc"}))
			var list []string
			for r := tar.NewReader(&made); ; {
				h, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				assert.NilError(t, err)
				text, err := io.ReadAll(r)
				assert.NilError(t, err)
				line := string(h.Typeflag) + " " + h.Name + " " + string(text)
				if h.Linkname != "" {
					line += "> " + h.Linkname
				}
				list = append(list, line)
			}
			assert.DeepEqual(t, list, test.want)
		})
	}
	// Of what was removed, all but the first are links to it.
	var given, made bytes.Buffer
	w := tar.NewWriter(&given)
	for _, h := range []tar.Header{{Typeflag: tar.TypeChar, Name: "./proc/x"}, {Typeflag: tar.TypeLink, Name: "./a", Linkname: "./proc/x"}, {Typeflag: tar.TypeLink, Name: "./b/c", Linkname: "./a"}, {Typeflag: tar.TypeLink, Name: "./d", Linkname: "./b/c"}} {
		assert.NilError(t, w.WriteHeader(&h))
	}
	assert.NilError(t, w.Close())
	assert.NilError(t, Layer(&given, &made, []string{"proc"}))
	for r, want := tar.NewReader(&made), []string{".wh.a", "b/.wh.c", ".wh.d"}; len(want) > 0; want = want[1:] {
		h, err := r.Next()
		assert.NilError(t, err)
		assert.Equal(t, h.Name, want[0])
		assert.Equal(t, h.Typeflag, byte(tar.TypeReg))
	}
	assert.Assert(t, Layer(bytes.NewReader([]byte("no archive, but more than a block of one; "+string(make([]byte, 600)))), io.Discard, nil) != nil)
}
