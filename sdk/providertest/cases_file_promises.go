package providertest

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// filePromiseCases are promises that agents are given in docs/agents-files.md. The
// comment of each quotes the page.
func filePromiseCases() []Case {
	const group = "files"
	return needing([]Case{
		{Group: group, Name: "a path is shortened as text before anything is looked at", run: pathsAreText},
		{Group: group, Name: "a link that stays in its place is followed", run: linksAreFollowed},
		{Group: group, Name: "a link where a file is to be written is a conflict", run: linkInTheWay},
		{Group: group, Name: "two spellings of a letter are two names", run: namesAreBytes},
		{Group: group, Name: "code and calls see one file", run: codeSharesFiles},
	}, sdk.CapabilityFiles)
}

func archivePromiseCases() []Case {
	const group = "archives"
	return needing([]Case{
		{Group: group, Name: "unpacked files have their modes and times", run: archiveModes},
		{Group: group, Name: "pipes are left out of an archive", run: archivePipes},
	}, sdk.CapabilityArchives, sdk.CapabilityFiles)
}

func replacePromiseCases() []Case {
	return needing([]Case{
		{Group: "file_search", Name: "a text that spans lines is replaced, and a file without it is not touched", run: replacesLines},
	}, sdk.CapabilityFileSearch, sdk.CapabilityFiles)
}

// python runs a program that does what no call can.
func (in files) python(code string) {
	in.someLanguage()
	if in.language != sdk.Python {
		in.skip("there is no code for this in %s", in.language)
	}
	in.run(code).succeeded()
}

// "`.` and `..` are taken out of a path as text, before anything is looked at."
func pathsAreText(c *scene) {
	in := c.instance().files()
	in.write("f", "content")
	for _, path := range []string{"absent/../f", "./absent/.././f", "/workspace//f", "/tmp/absent/../../workspace/f"} {
		in.holds(path, "content")
	}
}

// "Symbolic links on the way are followed as long as they stay in the directory,
// /workspace or /tmp, that the path is in."
func linksAreFollowed(c *scene) {
	in := c.tree()
	in.python("import os\nos.symlink('d', 'relative')\nos.symlink('/workspace/d/e', 'absolute')\nos.symlink('../a.py', 'd/up')\nos.symlink('/etc', 'outside')\n")
	in.holds("relative/c.txt", "content of d/c.txt\nsecond line\n")
	in.holds("absolute/f.py", "content of d/e/f.py\nsecond line\n")
	in.holds("relative/up", "content of a.py\nsecond line\n")
	in.isOutOfReach("outside/hostname")
}

// "something is in the way: … a link or a pipe where a file should be"
func linkInTheWay(c *scene) {
	in := c.instance().files()
	in.write("target", "as it was")
	in.python("import os\nos.symlink('target', 'link')\n")
	_, err := c.WriteFile(c.ctx, sdk.WriteFileRequest{InstanceID: in.ID, Path: "link"}, strings.NewReader("x"))
	c.refused(err, "WriteFile where a symbolic link is", sdk.CodeConflict)
	in.holds("target", "as it was")
}

// "Names are kept byte for byte: é written as one character and as two are two names."
func namesAreBytes(c *scene) {
	in := c.instance().files()
	in.write("caf\u00e9", "one character")
	in.write("cafe\u0301", "two characters")
	in.holds("caf\u00e9", "one character")
	in.holds("cafe\u0301", "two characters")
}

// "What a call may do is what code in the instance may do, and what it makes belongs to
// the user that code runs as."
func codeSharesFiles(c *scene) {
	in := c.instance().files()
	in.write("d/shared", "of the call", func(req *sdk.WriteFileRequest) { req.MakeParents = true })
	in.python("open('d/shared', 'a').write(', of code')\nopen('d/beside', 'w').write('new')\n")
	in.holds("d/shared", "of the call, of code")
	in.holds("d/beside", "new")
	in.write("d/beside", "changed")
	in.python("import os\nassert open('d/beside').read() == 'changed'\nos.remove('d/beside')\n")
	in.isAbsent("d/beside")
}

// "files, directories and symbolic links are put over what is there, with their modes
// and times"
func archiveModes(c *scene) {
	in := c.instance().files()
	at := time.Date(2024, 2, 29, 12, 30, 0, 0, time.UTC)
	_, err := c.WriteArchive(c.ctx, in.ID, ".", packed(
		tar.Header{Name: "run", Mode: 0o750, ModTime: at}, tar.Header{Name: "text", Mode: 0o640, ModTime: at}))
	c.must(err, "unpack")
	for name, mode := range map[string]uint32{"run": 0o750, "text": 0o640} {
		info := in.stat(name)
		equal(c, uint32(info.Mode), mode, "the mode of %s", name)
		equal(c, info.ModifiedAt.UTC(), at, "the time of %s", name)
	}
}

// "sockets, pipes and devices are left out"
func archivePipes(c *scene) {
	in := c.instance().files()
	in.python("import os\nos.mkdir('some')\nos.mkfifo('some/pipe')\nopen('some/file', 'w').close()\n")
	var names []string
	err := c.call("ReadArchive", func(ctx context.Context) error {
		archive, err := c.ReadArchive(ctx, sdk.ReadArchiveRequest{InstanceID: in.ID, Directory: "some"})
		if err != nil {
			return err
		}
		defer archive.Close()
		for r := tar.NewReader(archive); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			names = append(names, header.Name)
		}
	})
	c.must(err, "read the archive")
	equal(c, strings.Join(names, " "), "file", "what the archive holds")
}

// "`old` is plain text and may span lines. Each file is changed whole or not at all, and
// one with `"count": 0` is not touched"
func replacesLines(c *scene) {
	in := c.tree()
	before := in.stat("b.txt")
	replaced, err := c.ReplaceInFiles(c.ctx, sdk.ReplaceInFilesRequest{
		InstanceID: in.ID, Paths: []string{"a.py", "b.txt"}, Old: "of a.py\nsecond", New: "in\none",
	})
	c.must(err, "replace in two files")
	equal(c, replaced, []sdk.FileReplacement{{Path: "/workspace/a.py", Count: 1}, {Path: "/workspace/b.txt", Count: 0}}, "what was replaced")
	in.holds("a.py", "content in\none line\n")
	equal(c, in.stat("b.txt"), before, "the file without the text")
}
