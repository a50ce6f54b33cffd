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
func (in files) unpacked(req sdk.ReadArchiveRequest) map[string]string {
	req.InstanceID = in.ID
	archive, err := in.ReadArchive(in.ctx, req)
	in.must(err, "read the archive")
	defer archive.Close()
	files := map[string]string{}
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		in.must(err, "read the next entry")
		content, err := io.ReadAll(r)
		in.must(err, "read %s", h.Name)
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		if h.Typeflag == tar.TypeReg {
			files[name] = string(content)
		}
	}
}

// "ReadArchive streams files and directories below a directory, by names relative
// to it." (Archiver)
func archiveReads(c *scene) {
	files := c.tree().unpacked(sdk.ReadArchiveRequest{Directory: "d"})
	equal(c, files, map[string]string{"c.txt": "content of d/c.txt\nsecond line\n", "e/f.py": "content of d/e/f.py\nsecond line\n"}, "the files of the archive")
}

// "Paths below Directory; none for all of it." (ReadArchiveRequest)
func archiveParts(c *scene) {
	files := c.tree().unpacked(sdk.ReadArchiveRequest{Directory: ".", Paths: []string{"a.py", "d/e"}})
	equal(c, files, map[string]string{"a.py": "content of a.py\nsecond line\n", "d/e/f.py": "content of d/e/f.py\nsecond line\n"}, "the files of the archive")
}

// "WriteArchive unpacks regular files, directories and symbolic links below a
// directory, over what is there." (Archiver)
func archiveWrites(c *scene) {
	in := c.instance().files()
	in.write("a.txt", "before")
	in.write("kept.txt", "kept")
	summary, err := c.WriteArchive(c.ctx, in.ID, ".", packed(
		tar.Header{Name: "a.txt"}, tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "d/run.sh", Mode: 0o755},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "a.txt"},
	))
	c.must(err, "unpack")
	in.holds("a.txt", "content of a.txt")
	in.holds("d/run.sh", "content of d/run.sh")
	in.holds("link", "content of a.txt")
	in.holds("kept.txt", "kept")
	c.check(in.stat("d/run.sh").Mode&0o100 != 0, "a program is not executable when it is unpacked")
	equal(c, summary.Bytes, int64(len("content of a.txt")+len("content of d/run.sh")), "the bytes that were unpacked")
}

// Both.
func archiveRoundTrip(c *scene) {
	in := c.tree()
	archive, err := c.ReadArchive(c.ctx, sdk.ReadArchiveRequest{InstanceID: in.ID, Directory: "."})
	c.must(err, "read the archive")
	defer archive.Close()
	other := c.instance().files()
	_, err = c.WriteArchive(c.ctx, other.ID, ".", archive)
	c.must(err, "unpack what was packed")
	paths, _ := other.list(sdk.ListFilesRequest{Path: ".", Depth: 9})
	equal(c, below(paths), "a.py b.txt d d/c.txt d/e d/e/f.py z.txt", "what was unpacked")
	other.holds("d/e/f.py", "content of d/e/f.py\nsecond line\n")
}

// "An entry with an absolute name, with "..", of another type … is refused with
// CodeInvalidRequest, and ends the call there: what came before it stays."
// (Archiver)
func archiveEscapes(c *scene) {
	for _, bad := range []tar.Header{
		{Name: "/tmp/absolute"}, {Name: "../outside"}, {Name: "d/../../outside"}, {Name: "device", Typeflag: tar.TypeChar}, {Name: "pipe", Typeflag: tar.TypeFifo},
	} {
		in := c.instance().files()
		_, err := c.WriteArchive(c.ctx, in.ID, ".", packed(tar.Header{Name: "first"}, bad))
		c.refused(err, "WriteArchive with the entry "+bad.Name, sdk.CodeInvalidRequest)
		in.holds("first", "content of first")
		in.isAbsent("/tmp/absolute")
		in.isOutOfReach("/outside")
		c.destroy(in.ID)
	}
}

// "or that leads through a symbolic link" (Archiver)
func archiveThroughLinks(c *scene) {
	in := c.instance().files()
	_, err := c.WriteArchive(c.ctx, in.ID, ".", packed(
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, tar.Header{Name: "link/through"},
	))
	c.refused(err, "WriteArchive through a symbolic link", sdk.CodeInvalidRequest)
	in.isAbsent("/tmp/through")
}

// "So is an archive that lacks its end, two blocks of zeros: its sender died between
// two entries." (Archiver)
func archiveCut(c *scene) {
	in := c.instance()
	whole, err := io.ReadAll(packed(tar.Header{Name: "first"}, tar.Header{Name: "second"}))
	c.must(err, "make an archive")
	const entry = 1024 // a header, and what it is about
	for sent, what := range map[int]string{0: "nothing", entry: "one entry", 2 * entry: "all but the end"} {
		_, err := c.WriteArchive(c.ctx, in.ID, ".", bytes.NewReader(whole[:sent]))
		c.refused(err, "WriteArchive of "+what, sdk.CodeInvalidRequest)
	}
	_, err = c.WriteArchive(c.ctx, in.ID, ".", packed())
	c.must(err, "unpack an archive of nothing")
}

// "Errors are those of Files." (Archiver)
func archiveUnknown(c *scene) {
	in := c.instance()
	_, err := c.ReadArchive(c.ctx, sdk.ReadArchiveRequest{InstanceID: in.ID, Directory: "absent"})
	c.refused(err, "ReadArchive of what is not there", sdk.CodeNotFound)
}
