package providertest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func archiveCases() []Case {
	const group = "archives"
	return needing([]Case{
		{Group: group, Name: "a directory comes as an archive", run: archiveReads},
		{Group: group, Name: "parts of a directory come as an archive", run: archiveParts},
		{Group: group, Name: "an archive is unpacked over what is there", run: archiveWrites},
		{Group: group, Name: "an archive comes back as it was", run: archiveRoundTrip},
		{Group: group, Name: "entries that lead out are refused", run: archiveEscapes},
		{Group: group, Name: "entries through a symbolic link are refused", run: archiveThroughLinks},
		{Group: group, Name: "an archive without its end is refused", run: archiveCut},
		{Group: group, Name: "a directory that is not there is not found", run: archiveUnknown},
	}, sdk.CapabilityArchives, sdk.CapabilityFiles)
}

// packed makes an archive.
func packed(entries ...tar.Header) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := "content of " + h.Name
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		// Writes to memory, of headers that are all right.
		_ = w.WriteHeader(&h)
		if h.Typeflag == tar.TypeReg {
			_, _ = io.WriteString(w, content)
		}
	}
	_ = w.Close()
	return &b
}

// unpacked reads an archive of the provider: names, with what regular files hold.
func (c *scene) unpacked(req sdk.ReadArchiveRequest) map[string]string {
	archive, err := c.ReadArchive(c.ctx, req)
	c.must(err, "read the archive")
	defer archive.Close()
	files := map[string]string{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		c.must(err, "read the next entry")
		content, err := io.ReadAll(r)
		c.must(err, "read %s", h.Name)
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if h.Typeflag == tar.TypeReg {
			files[name] = string(content)
		}
	}
}

// "ReadArchive streams files and directories below a directory, by names relative
// to it." (Archiver)
func archiveReads(c *scene) {
	files := c.unpacked(sdk.ReadArchiveRequest{InstanceID: c.tree(), Directory: "d"})
	equal(c, files, map[string]string{"c.txt": "content of d/c.txt\nsecond line\n", "e/f.py": "content of d/e/f.py\nsecond line\n"}, "the files of the archive")
}

// "Paths below Directory; none for all of it." (ReadArchiveRequest)
func archiveParts(c *scene) {
	files := c.unpacked(sdk.ReadArchiveRequest{InstanceID: c.tree(), Directory: ".", Paths: []string{"a.py", "d/e"}})
	equal(c, files, map[string]string{"a.py": "content of a.py\nsecond line\n", "d/e/f.py": "content of d/e/f.py\nsecond line\n"}, "the files of the archive")
}

// "WriteArchive unpacks regular files, directories and symbolic links below a
// directory, over what is there." (Archiver)
func archiveWrites(c *scene) {
	id := c.instance()
	c.write(id, "a.txt", "before")
	c.write(id, "kept.txt", "kept")
	summary, err := c.WriteArchive(c.ctx, id, ".", packed(
		tar.Header{Name: "a.txt"}, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "d/run.sh", Mode: 0o755},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "a.txt"},
	))
	c.must(err, "unpack")
	c.holds(id, "a.txt", "content of a.txt")
	c.holds(id, "d/run.sh", "content of d/run.sh")
	c.holds(id, "link", "content of a.txt")
	c.holds(id, "kept.txt", "kept")
	c.check(c.stat(id, "d/run.sh").Mode&0o100 != 0, "a program is not executable when it is unpacked")
	equal(c, summary.Bytes, int64(len("content of a.txt")+len("content of d/run.sh")), "the bytes that were unpacked")
}

// Both.
func archiveRoundTrip(c *scene) {
	id := c.tree()
	archive, err := c.ReadArchive(c.ctx, sdk.ReadArchiveRequest{InstanceID: id, Directory: "."})
	c.must(err, "read the archive")
	defer archive.Close()
	other := c.instance()
	_, err = c.WriteArchive(c.ctx, other, ".", archive)
	c.must(err, "unpack what was packed")
	paths, _ := c.list(sdk.ListFilesRequest{InstanceID: other, Path: ".", Depth: 9})
	equal(c, below(paths), "a.py b.txt d d/c.txt d/e d/e/f.py z.txt", "what was unpacked")
	c.holds(other, "d/e/f.py", "content of d/e/f.py\nsecond line\n")
}

// "An entry with an absolute name, with "..", of another type … is refused with
// CodeInvalidRequest, and ends the call there: what came before it stays."
// (Archiver)
func archiveEscapes(c *scene) {
	for _, bad := range []tar.Header{
		{Name: "/tmp/absolute"}, {Name: "../outside"}, {Name: "d/../../outside"}, {Name: "device", Typeflag: tar.TypeChar}, {Name: "pipe", Typeflag: tar.TypeFifo},
	} {
		id := c.instance()
		_, err := c.WriteArchive(c.ctx, id, ".", packed(tar.Header{Name: "first"}, bad))
		c.refused(err, "WriteArchive with the entry "+bad.Name, sdk.CodeInvalidRequest)
		c.holds(id, "first", "content of first")
		c.isAbsent(id, "/tmp/absolute")
		c.isOutOfReach(id, "/outside")
		c.destroy(id)
	}
}

// "or that leads through a symbolic link" (Archiver)
func archiveThroughLinks(c *scene) {
	id := c.instance()
	_, err := c.WriteArchive(c.ctx, id, ".", packed(
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, tar.Header{Name: "link/through"},
	))
	c.refused(err, "WriteArchive through a symbolic link", sdk.CodeInvalidRequest)
	c.isAbsent(id, "/tmp/through")
}

// "So is an archive that lacks its end, two blocks of zeros: its sender died between
// two entries." (Archiver)
func archiveCut(c *scene) {
	id := c.instance()
	whole, err := io.ReadAll(packed(tar.Header{Name: "first"}, tar.Header{Name: "second"}))
	c.must(err, "make an archive")
	const entry = 1024 // a header, and what it is about
	for sent, what := range map[int]string{0: "nothing", entry: "one entry", 2 * entry: "all but the end"} {
		_, err := c.WriteArchive(c.ctx, id, ".", bytes.NewReader(whole[:sent]))
		c.refused(err, "WriteArchive of "+what, sdk.CodeInvalidRequest)
	}
	_, err = c.WriteArchive(c.ctx, id, ".", packed())
	c.must(err, "unpack an archive of nothing")
}

// "Errors are those of Files." (Archiver)
func archiveUnknown(c *scene) {
	id := c.instance()
	_, err := c.ReadArchive(c.ctx, sdk.ReadArchiveRequest{InstanceID: id, Directory: "absent"})
	c.refused(err, "ReadArchive of what is not there", sdk.CodeNotFound)
}
