package files_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// entry is one of an archive.
type entry struct {
	name, text, target string
	kind               byte // a regular file unless given
	mode               int64
	size               int64 // declared, if not that of text
	pax                map[string]string
}

// archive makes an archive that breaks off where an entry's size is not that of
// its text.
func archive(t *testing.T, entries ...entry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.target, Mode: 0o644, Size: int64(len(e.text)), PAXRecords: e.pax, ModTime: time.Unix(1e9, 0)}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.mode != 0 {
			h.Mode = e.mode
		}
		if e.size != 0 {
			h.Size = e.size
		}
		if e.kind == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: e.kind, Name: e.name, PAXRecords: e.pax}
		}
		assert.NilError(t, w.WriteHeader(h))
		_, err := io.WriteString(w, e.text)
		assert.NilError(t, err)
	}
	if err := w.Close(); err != nil {
		assert.ErrorContains(t, err, "missed writing")
	}
	return bytes.NewReader(b.Bytes())
}

func TestAnArchiveIsUnpacked(t *testing.T) {
	s := serve(t, nil)
	assert.NilError(t, s.write(t, "a/old", "old"))
	s.byCode(t, "a/was-link", linkTo("nowhere"))
	summary, err := s.WriteArchive(t.Context(), "", ".", archive(t,
		entry{name: "pax_global_header", kind: tar.TypeXGlobalHeader, pax: map[string]string{"comment": "of git"}},
		entry{name: "./", kind: tar.TypeDir, mode: 0o755},
		entry{name: "./a/old", text: "new", mode: 0o6755},
		entry{name: "a/was-link", text: "a file now"},
		entry{name: "implied/parent/f", text: "x"},
		entry{name: "kept/", kind: tar.TypeDir, mode: 0o700},
		entry{name: "out", kind: tar.TypeSymlink, target: "/etc/passwd"},
		entry{name: "caf\u00e9", text: "1"}, entry{name: "cafe\u0301", text: "2"},
	))
	assert.NilError(t, err)
	assert.DeepEqual(t, summary, sdk.ArchiveSummary{Files: 6, Bytes: 16})
	info, err := os.Stat(filepath.Join(s.workspace, "a", "old"))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode(), os.FileMode(0o755), "the bits that change the user are not set")
	assert.Equal(t, info.ModTime().Unix(), int64(1e9))
	for path, want := range map[string]string{"a/old": "new", "a/was-link": "a file now", "implied/parent/f": "x", "caf\u00e9": "1", "cafe\u0301": "2"} {
		text, err := s.read(t, path)
		assert.NilError(t, err)
		assert.Equal(t, text, want)
	}
	_, err = s.read(t, "out")
	assert.Equal(t, code(err), sdk.CodeInvalidRequest, "the link is there and leads nowhere: %v", err)
}

func TestAnArchiveIsRefusedWhereItMisleads(t *testing.T) {
	gzipped := &bytes.Buffer{}
	z := gzip.NewWriter(gzipped)
	_, _ = io.Copy(z, archive(t, entry{name: "f"}))
	assert.NilError(t, z.Close())
	cut, err := io.ReadAll(archive(t, entry{name: "before", text: "x"}, entry{name: "f", text: strings.Repeat("x", 1<<20)}))
	assert.NilError(t, err)
	for name, test := range map[string]struct {
		content io.Reader
		want    sdk.Code
	}{
		"an absolute name":                {archive(t, entry{name: "before"}, entry{name: "/tmp/f"}), sdk.CodeInvalidRequest},
		"a name with ..":                  {archive(t, entry{name: "before"}, entry{name: "a/../../f"}), sdk.CodeInvalidRequest},
		"a name of ..":                    {archive(t, entry{name: "before"}, entry{name: "..", kind: tar.TypeDir}), sdk.CodeInvalidRequest},
		"a hard link":                     {archive(t, entry{name: "before"}, entry{name: "f", kind: tar.TypeLink, target: "before"}), sdk.CodeInvalidRequest},
		"a hard link out":                 {archive(t, entry{name: "before"}, entry{name: "f", kind: tar.TypeLink, target: "/etc/passwd"}), sdk.CodeInvalidRequest},
		"a device":                        {archive(t, entry{name: "before"}, entry{name: "f", kind: tar.TypeChar}), sdk.CodeInvalidRequest},
		"a pipe":                          {archive(t, entry{name: "before"}, entry{name: "f", kind: tar.TypeFifo}), sdk.CodeInvalidRequest},
		"a way through a link of its own": {archive(t, entry{name: "before"}, entry{name: "l", kind: tar.TypeSymlink, target: "/tmp"}, entry{name: "l/f"}), sdk.CodeInvalidRequest},
		"a directory in place of a link":  {archive(t, entry{name: "before"}, entry{name: "l", kind: tar.TypeSymlink, target: "/tmp"}, entry{name: "l/", kind: tar.TypeDir}), sdk.CodeInvalidRequest},
		"a file in place of a directory":  {archive(t, entry{name: "before"}, entry{name: "d/", kind: tar.TypeDir, mode: 0o755}, entry{name: "d"}), sdk.CodeConflict},
		"a name that is too long":         {archive(t, entry{name: "before"}, entry{name: strings.Repeat("n", 256)}), sdk.CodeInvalidRequest},
		"a link to nothing":               {archive(t, entry{name: "before"}, entry{name: "l", kind: tar.TypeSymlink, target: strings.Repeat("x", 4096)}), sdk.CodeInvalidRequest},
		"10 TiB":                          {archive(t, entry{name: "before"}, entry{name: "f", text: "x", size: 10 << 40}), sdk.CodeQuotaExceeded},
		"one that is cut between entries": {bytes.NewReader(cut[:1024]), sdk.CodeInvalidRequest},
		"one that is cut off":             {bytes.NewReader(cut[:len(cut)/2]), sdk.CodeInvalidRequest},
		"much behind its end":             {io.MultiReader(archive(t, entry{name: "before"}), bytes.NewReader(make([]byte, 2<<20))), sdk.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, nil)
			_, err := s.WriteArchive(t.Context(), "", ".", test.content)
			assert.Equal(t, code(err), test.want, "%v", err)
			_, err = s.StatFile(t.Context(), "", "before")
			assert.NilError(t, err, "what came before stays")
			_, err = s.StatFile(t.Context(), "", "f")
			assert.Equal(t, code(err), sdk.CodeNotFound)
		})
	}
	for name, content := range map[string]io.Reader{"a compressed one": gzipped, "no archive": strings.NewReader(strings.Repeat("text", 1000))} {
		_, err := serve(t, nil).WriteArchive(t.Context(), "", ".", content)
		assert.Check(t, is.Equal(code(err), sdk.CodeInvalidRequest), "%s: %v", name, err)
	}
}

// A sparse entry of a few bytes stands for a file of any size.
func TestASparseEntryIsRefused(t *testing.T) {
	// As GNU tar writes version 1.0: the map of the data in front of the data.
	content := "1\n1099511627775\n1\n" + strings.Repeat("\x00", 512-18) + "x"
	pax := paxRecord("GNU.sparse.major", "1") + paxRecord("GNU.sparse.minor", "0") + paxRecord("GNU.sparse.name", "f") + paxRecord("GNU.sparse.realsize", "1099511627776")
	var b bytes.Buffer
	b.Write(header("PaxHeaders.0/f", 'x', int64(len(pax))))
	b.WriteString(pax + strings.Repeat("\x00", 512-len(pax)))
	b.Write(header("GNUSparseFile.0/f", '0', int64(len(content))))
	b.WriteString(content + strings.Repeat("\x00", 1024-len(content)))
	b.Write(make([]byte, 1024))
	s := serve(t, nil)
	_, err := s.WriteArchive(t.Context(), "", ".", &b)
	assert.ErrorContains(t, err, "sparse")
	assert.Equal(t, code(err), sdk.CodeInvalidRequest)
}

func paxRecord(key, value string) string {
	rest := " " + key + "=" + value + "\n"
	length := len(rest) + 2
	return string(rune('0'+length/10)) + string(rune('0'+length%10)) + rest
}

// header is a header of ustar.
func header(name string, kind byte, size int64) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size, Format: tar.FormatUSTAR})
	h := b.Bytes()[:512]
	h[156] = kind
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	return h
}

func TestAnArchiveComesBackAsItWent(t *testing.T) {
	s := serve(t, nil)
	assert.NilError(t, s.write(t, "d/sub/f", "text"))
	assert.NilError(t, s.write(t, "d/"+strings.Repeat("long", 40), "1"))
	s.byCode(t, "d/link", linkTo("sub/f"))
	s.byCode(t, "d/pipe", pipe)
	content, err := s.ReadArchive(t.Context(), sdk.ReadArchiveRequest{Directory: "d"})
	assert.NilError(t, err)
	_, err = s.MakeDirectory(t.Context(), "", "copy", 0)
	assert.NilError(t, err)
	summary, err := s.WriteArchive(t.Context(), "", "copy", content)
	assert.NilError(t, errors.Join(err, content.Close()))
	assert.DeepEqual(t, summary, sdk.ArchiveSummary{Files: 3, Bytes: 5})
	paths, _ := s.list(t, sdk.ListFilesRequest{Path: "copy", Depth: 9, Limit: 9})
	assert.DeepEqual(t, paths, []string{"copy/link", "copy/" + strings.Repeat("long", 40), "copy/sub", "copy/sub/f"})

	for _, path := range []string{"..", "../x", "/etc", "."} {
		_, err = s.ReadArchive(t.Context(), sdk.ReadArchiveRequest{Directory: "d", Paths: []string{path}})
		assert.Check(t, is.Equal(code(err), sdk.CodeInvalidRequest), "%s: %v", path, err)
	}
}

func TestACutUploadLeavesNoPartOfAFile(t *testing.T) {
	s := serve(t, nil)
	whole, err := io.ReadAll(archive(t, entry{name: "before", text: "x"}, entry{name: "f", text: strings.Repeat("x", 4<<20)}))
	assert.NilError(t, err)
	broken := errors.New("broken")
	names := func() (list []string) {
		entries, err := os.ReadDir(s.workspace)
		assert.Check(t, err)
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	_, err = s.WriteArchive(t.Context(), "", ".", io.MultiReader(bytes.NewReader(whole[:5<<19]), readerFunc(func([]byte) (int, error) {
		poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(names(), 2)) }, poll.WithTimeout(2*time.Minute)) // before, and a draft
		return 0, broken
	})))
	assert.ErrorIs(t, err, broken)
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.DeepEqual(names(), []string{"before"})) }, poll.WithTimeout(2*time.Minute))
}

func TestNothingIsNoArchive(t *testing.T) {
	s := serve(t, nil)
	_, err := s.WriteArchive(t.Context(), "", ".", strings.NewReader(""))
	assert.Equal(t, code(err), sdk.CodeInvalidRequest, "%v", err)
	_, err = s.WriteArchive(t.Context(), "", ".", archive(t))
	assert.NilError(t, err, "an archive of nothing is one")
}
