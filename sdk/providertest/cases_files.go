package providertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing/iotest"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func fileCases() []Case {
	const group = "files"
	return needing([]Case{
		{Group: group, Name: "what was written is read", run: fileRoundTrip},
		{Group: group, Name: "large files come back whole", run: largeFile},
		{Group: group, Name: "code sees what was written", run: codeSeesFiles},
		{Group: group, Name: "what code wrote is read", run: filesOfCode},
		{Group: group, Name: "relative paths begin at /workspace", run: relativePaths},
		{Group: group, Name: "a part of a file is read", run: fileParts},
		{Group: group, Name: "a file is replaced as a whole", run: fileIsReplaced},
		{Group: group, Name: "content that breaks off changes nothing", run: fileBreaksOff},
		{Group: group, Name: "the mode is the one that was asked for", run: fileModes},
		{Group: group, Name: "missing parents are made only when asked for", run: fileParents},
		{Group: group, Name: "files are described", run: filesAreDescribed},
		{Group: group, Name: "a symbolic link is described as such", run: linksAreDescribed},
		{Group: group, Name: "a directory is listed in the order of paths", run: directoriesAreListed},
		{Group: group, Name: "a list obeys its glob", run: listsObeyGlob},
		{Group: group, Name: "a list obeys its limit and says so", run: listsObeyLimit},
		{Group: group, Name: "directories are made, and again", run: directoriesAreMade},
		{Group: group, Name: "a file is moved", run: filesAreMoved},
		{Group: group, Name: "a move replaces only when asked to", run: movesReplace},
		{Group: group, Name: "a directory is copied with all that is in it", run: directoriesAreCopied},
		{Group: group, Name: "files are removed", run: filesAreRemoved},
		{Group: group, Name: "a directory with files is removed only when asked to", run: directoriesAreRemoved},
		{Group: group, Name: "files that are not there are not found", run: filesAreNotFound},
		{Group: group, Name: "a directory in the way of a file is a conflict", run: directoryInTheWay},
		{Group: group, Name: "names of all letters work", run: strangeNames},
		{Group: group, Name: "a path that cannot be is refused", run: impossiblePaths},
		{Group: group, Name: "no path leads to another instance", run: filesOfOneInstance},
		{Group: group, Name: "no path leads to the host", run: filesOfTheHost},
		{Group: group, Name: "a reader that is closed early holds up nothing", run: readerIsClosed},
	}, sdk.CapabilityFiles)
}

// files is an instance as the calls for files see it.
type files struct{ instance }

func (in instance) files() files { return files{in} }

func (in files) write(path, content string, change ...func(*sdk.WriteFileRequest)) sdk.FileInfo {
	req := sdk.WriteFileRequest{InstanceID: in.ID, Path: path}
	for _, f := range change {
		f(&req)
	}
	var info sdk.FileInfo
	err := in.call("WriteFile", func(ctx context.Context) (err error) {
		info, err = in.WriteFile(ctx, req, strings.NewReader(content))
		return err
	})
	in.must(err, "write %s", path)
	return info
}

func (in files) tryRead(req sdk.ReadFileRequest) (content string, err error) {
	req.InstanceID = in.ID
	err = in.call("ReadFile", func(ctx context.Context) error {
		_, reader, err := in.ReadFile(ctx, req)
		if err != nil {
			return err
		}
		defer reader.Close()
		all, err := io.ReadAll(reader)
		content = string(all)
		return err
	})
	return content, err
}

func (in files) holds(path, want string) {
	got, err := in.tryRead(sdk.ReadFileRequest{Path: path})
	in.must(err, "read %s", path)
	equal(in, got, want, "the content of %s", path)
}

func (in files) stat(path string) sdk.FileInfo {
	info, err := in.StatFile(in.ctx, in.ID, path)
	in.must(err, "describe %s", path)
	return info
}

func (in files) isAbsent(path string) {
	_, err := in.StatFile(in.ctx, in.ID, path)
	in.refused(err, "StatFile of "+path+", which is not there,", sdk.CodeNotFound)
}

func (in files) list(req sdk.ListFilesRequest) (paths []string, truncated bool) {
	req.InstanceID = in.ID
	if req.Limit == 0 {
		req.Limit = 1000
	}
	req.Depth = max(req.Depth, 1)
	truncated, err := in.ListFiles(in.ctx, req, func(files []sdk.FileInfo) error {
		for _, f := range files {
			paths = append(paths, f.Path)
		}
		return nil
	})
	in.must(err, "list %s", req.Path)
	return paths, truncated
}

// "WriteFile makes or replaces a regular file." "ReadFile opens a regular file."
// (Files)
func fileRoundTrip(c *scene) {
	in := c.instance().files()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for path, content := range map[string]string{"bytes.bin": string(every), "empty.txt": "", "text.txt": "Grüße, 世界 🎈\r\n"} {
		info := in.write(path, content)
		equal(c, info.Size, int64(len(content)), "the size of %s", path)
		in.holds(path, content)
	}
}

// The same: of any size.
func largeFile(c *scene) {
	in := c.instance().files()
	content := strings.Repeat("0123456789abcdef", 5<<20/16) + "end"
	in.write("large.bin", content)
	in.holds("large.bin", content)
}

// "the files of an instance" (Files)
func codeSeesFiles(c *scene) {
	in := c.instance().files()
	in.write("providertest.txt", "kept")
	in.prints(c.samples.Read, "kept")
}

// The same.
func filesOfCode(c *scene) {
	in := c.instance().files()
	in.run(c.samples.Write).succeeded()
	in.holds("providertest.txt", "kept")
}

// "relative ones begin at /workspace" (Files)
func relativePaths(c *scene) {
	in := c.instance().files()
	equal(c, in.write("a.txt", "x").Path, "/workspace/a.txt", "the path of a.txt")
	in.holds("/workspace/a.txt", "x")
	in.holds("./d/../a.txt", "x")
}

// "Offset of the first byte; negative counts from the end. Length at most; 0 for
// all." (ReadFileRequest)
func fileParts(c *scene) {
	in := c.instance().files()
	in.write("digits", "0123456789")
	for _, part := range []struct {
		offset, length int64
		want           string
	}{{3, 0, "3456789"}, {3, 4, "3456"}, {-3, 0, "789"}, {-3, 2, "78"}, {0, 100, "0123456789"}, {10, 0, ""}} {
		got, err := in.tryRead(sdk.ReadFileRequest{Path: "digits", Offset: part.offset, Length: part.length})
		c.must(err, "read %d bytes from %d", part.length, part.offset)
		equal(c, got, part.want, "%d bytes from %d", part.length, part.offset)
	}
}

// "It appears whole, when content has ended with io.EOF." (Files.WriteFile)
func fileIsReplaced(c *scene) {
	in := c.instance().files()
	in.write("f", "a longer text")
	in.write("f", "short")
	in.holds("f", "short")
}

// "or not at all: any other error of content leaves everything as it was."
// (Files.WriteFile)
func fileBreaksOff(c *scene) {
	in := c.instance().files()
	in.write("kept", "as it was")
	broken := errors.New("the caller went away")
	for _, path := range []string{"kept", "new"} {
		content := io.MultiReader(bytes.NewReader(make([]byte, 2<<20)), iotest.ErrReader(broken))
		_, err := c.WriteFile(c.ctx, sdk.WriteFileRequest{InstanceID: in.ID, Path: path}, content)
		c.check(err != nil, "WriteFile of content that breaks off succeeded")
	}
	in.holds("kept", "as it was")
	in.isAbsent("new")
	c.eventually("what was half written is cleared away", func(context.Context) error {
		if paths, _ := in.list(sdk.ListFilesRequest{Path: "."}); len(paths) != 1 {
			return errors.New("the directory holds " + strings.Join(paths, ", "))
		}
		return nil
	})
}

// "Mode has permission bits; 0 keeps those of the file that is replaced, 0644 for a
// new one." (WriteFileRequest)
func fileModes(c *scene) {
	in := c.instance().files()
	in.write("plain", "x")
	equal(c, in.stat("plain").Mode, fs.FileMode(0o644), "the mode of a new file")
	in.write("program", "x", func(req *sdk.WriteFileRequest) { req.Mode = 0o750 })
	equal(c, in.stat("program").Mode, fs.FileMode(0o750), "the mode that was asked for")
	in.write("program", "y")
	equal(c, in.stat("program").Mode, fs.FileMode(0o750), "the mode of a file that was replaced")
}

// "MakeParents makes directories that are missing." (WriteFileRequest)
func fileParents(c *scene) {
	in := c.instance().files()
	_, err := c.WriteFile(c.ctx, sdk.WriteFileRequest{InstanceID: in.ID, Path: "a/b/f"}, strings.NewReader("x"))
	c.refused(err, "WriteFile below a directory that is not there", sdk.CodeNotFound)
	in.write("a/b/f", "x", func(req *sdk.WriteFileRequest) { req.MakeParents = true })
	in.holds("a/b/f", "x")
}

// FileInfo.
func filesAreDescribed(c *scene) {
	in := c.instance().files()
	in.write("f", "12345")
	info := in.stat("f")
	equal(c, info.Path, "/workspace/f", "the path")
	equal(c, info.Type, sdk.FileRegular, "the type")
	equal(c, info.Size, 5, "the size")
	c.check(!info.ModifiedAt.IsZero(), "the time of modification is missing")
	equal(c, in.stat(".").Type, sdk.FileDirectory, "the type of the workspace")
}

// "StatFile does not follow a symbolic link at the end of the path." (Files)
// "Target of a symbolic link, as it is written there." (FileInfo)
func linksAreDescribed(c *scene) {
	c.someLanguage()
	if c.language != sdk.Python {
		c.skip("there is no code that makes links in %s", c.language)
	}
	in := c.instance().files()
	in.write("f", "12345")
	in.run("import os\nos.symlink('f', 'link')\nos.symlink('nowhere', 'dangling')\n").succeeded()
	for link, target := range map[string]string{"link": "f", "dangling": "nowhere"} {
		info := in.stat(link)
		equal(c, info.Type, sdk.FileSymlink, "the type of a link")
		equal(c, info.Target, target, "the target of a link")
	}
	in.holds("link", "12345")
}

// tree makes files to list, search and pack.
func (c *scene) tree() files {
	in := c.instance().files()
	for _, path := range []string{"b.txt", "a.py", "d/c.txt", "d/e/f.py", "z.txt"} {
		in.write(path, "content of "+path+"\nsecond line\n", func(req *sdk.WriteFileRequest) { req.MakeParents = true })
	}
	return in
}

// "ListFiles passes on what is below a directory in the order of paths." (Files)
// "Depth in levels; 1 is the directory's own entries." (ListFilesRequest)
func directoriesAreListed(c *scene) {
	in := c.tree()
	for depth, want := range map[int]string{
		1: "a.py b.txt d z.txt",
		2: "a.py b.txt d d/c.txt d/e z.txt",
		9: "a.py b.txt d d/c.txt d/e d/e/f.py z.txt",
	} {
		paths, truncated := in.list(sdk.ListFilesRequest{Path: ".", Depth: depth})
		equal(c, below(paths), want, "what is below the workspace to the depth %d", depth)
		c.check(!truncated, "a list that is whole counts as cut")
	}
}

// below shows paths relative to the workspace.
func below(paths []string) string {
	words := make([]string, len(paths))
	for i, p := range paths {
		words[i] = strings.TrimPrefix(p, "/workspace/")
	}
	return strings.Join(words, " ")
}

// "Glob selects by path relative to Path: *, ?, [a-z], {a,b}, and ** for any number
// of directories." (ListFilesRequest)
func listsObeyGlob(c *scene) {
	in := c.tree()
	for glob, want := range map[string]string{
		"*.txt": "b.txt z.txt", "**/*.py": "a.py d/e/f.py", "d/*": "d/c.txt d/e", "{a,b}.*": "a.py b.txt", "[y-z].tx?": "z.txt",
	} {
		paths, _ := in.list(sdk.ListFilesRequest{Path: ".", Depth: 9, Glob: glob})
		equal(c, below(paths), want, "what matches %s", glob)
	}
}

// "and says whether there was more than the limit." (Files.ListFiles)
func listsObeyLimit(c *scene) {
	in := c.tree()
	paths, truncated := in.list(sdk.ListFilesRequest{Path: ".", Limit: 3})
	equal(c, below(paths), "a.py b.txt d", "the first three of four entries")
	c.check(truncated, "a list that was cut does not say so")
	_, truncated = in.list(sdk.ListFilesRequest{Path: ".", Limit: 4})
	c.check(!truncated, "a list of exactly the limit counts as cut")
}

// "MakeDirectory makes a directory and its parents. One that exists is a success."
// (Files)
func directoriesAreMade(c *scene) {
	in := c.instance().files()
	for range 2 {
		info, err := c.MakeDirectory(c.ctx, in.ID, "x/y/z", 0o755)
		c.must(err, "make a directory")
		equal(c, info.Type, sdk.FileDirectory, "the type")
	}
	in.write("f", "x")
	_, err := c.MakeDirectory(c.ctx, in.ID, "f", 0o755)
	c.refused(err, "MakeDirectory where a file is", sdk.CodeConflict)
}

// "MoveFile renames a file or directory, across file systems too." (Files)
func filesAreMoved(c *scene) {
	in := c.tree()
	for from, to := range map[string]string{"a.py": "moved.py", "d": "moved", "b.txt": "/tmp/b.txt"} {
		_, err := c.MoveFile(c.ctx, sdk.MoveFileRequest{InstanceID: in.ID, From: from, To: to})
		c.must(err, "move %s to %s", from, to)
		in.isAbsent(from)
	}
	in.holds("moved.py", "content of a.py\nsecond line\n")
	in.holds("moved/e/f.py", "content of d/e/f.py\nsecond line\n")
	in.holds("/tmp/b.txt", "content of b.txt\nsecond line\n")
}

// "Overwrite replaces a file that is at To; a directory is never replaced."
// (MoveFileRequest)
func movesReplace(c *scene) {
	in := c.tree()
	_, err := c.MoveFile(c.ctx, sdk.MoveFileRequest{InstanceID: in.ID, From: "a.py", To: "b.txt"})
	c.refused(err, "MoveFile over a file", sdk.CodeConflict)
	in.holds("b.txt", "content of b.txt\nsecond line\n")
	_, err = c.MoveFile(c.ctx, sdk.MoveFileRequest{InstanceID: in.ID, From: "a.py", To: "d", Overwrite: true})
	c.refused(err, "MoveFile over a directory", sdk.CodeConflict)
	_, err = c.MoveFile(c.ctx, sdk.MoveFileRequest{InstanceID: in.ID, From: "a.py", To: "b.txt", Overwrite: true})
	c.must(err, "move over a file with overwrite")
	in.holds("b.txt", "content of a.py\nsecond line\n")
}

// "CopyFile copies a file, or a directory with all that is in it." (Files)
func directoriesAreCopied(c *scene) {
	in := c.tree()
	for from, to := range map[string]string{"a.py": "copied.py", "d": "copied"} {
		_, err := c.CopyFile(c.ctx, sdk.MoveFileRequest{InstanceID: in.ID, From: from, To: to})
		c.must(err, "copy %s to %s", from, to)
	}
	in.holds("copied.py", "content of a.py\nsecond line\n")
	in.holds("copied/e/f.py", "content of d/e/f.py\nsecond line\n")
	in.holds("d/e/f.py", "content of d/e/f.py\nsecond line\n")
	in.write("copied/e/f.py", "changed")
	in.holds("d/e/f.py", "content of d/e/f.py\nsecond line\n")
}

// "RemoveFile removes a file, a symbolic link, an empty directory." (Files)
func filesAreRemoved(c *scene) {
	in := c.tree()
	_, err := c.MakeDirectory(c.ctx, in.ID, "empty", 0o755)
	c.must(err, "make a directory")
	for _, path := range []string{"a.py", "empty"} {
		c.must(c.RemoveFile(c.ctx, in.ID, path, false), "remove %s", path)
		in.isAbsent(path)
	}
	c.refused(c.RemoveFile(c.ctx, in.ID, "a.py", false), "RemoveFile of what is gone", sdk.CodeNotFound)
}

// "or, with recursive, a directory with all that is in it." (Files.RemoveFile)
func directoriesAreRemoved(c *scene) {
	in := c.tree()
	c.refused(c.RemoveFile(c.ctx, in.ID, "d", false), "RemoveFile of a directory with files", sdk.CodeConflict)
	in.holds("d/c.txt", "content of d/c.txt\nsecond line\n")
	c.must(c.RemoveFile(c.ctx, in.ID, "d", true), "remove a directory with all that is in it")
	in.isAbsent("d")
}

// "Errors are CodeNotFound for an unknown instance or file." (Files)
func filesAreNotFound(c *scene) {
	in := c.instance().files()
	_, err := in.tryRead(sdk.ReadFileRequest{Path: "absent"})
	c.refused(err, "ReadFile of what is not there", sdk.CodeNotFound)
	in.isAbsent("absent/below")
	_, err = c.ListFiles(c.ctx, sdk.ListFilesRequest{InstanceID: in.ID, Path: "absent", Depth: 1, Limit: 1}, func([]sdk.FileInfo) error { return nil })
	c.refused(err, "ListFiles of what is not there", sdk.CodeNotFound)
	_, err = c.CopyFile(c.ctx, sdk.MoveFileRequest{InstanceID: in.ID, From: "absent", To: "x"})
	c.refused(err, "CopyFile of what is not there", sdk.CodeNotFound)
	_, err = c.StatFile(c.ctx, "unknown"+randomWord(), "f")
	c.refused(err, "StatFile in an unknown instance", sdk.CodeNotFound)
}

// "CodeConflict where something is in the way (a directory for a file, …)" (Files)
func directoryInTheWay(c *scene) {
	in := c.tree()
	_, err := c.WriteFile(c.ctx, sdk.WriteFileRequest{InstanceID: in.ID, Path: "d"}, strings.NewReader("x"))
	c.refused(err, "WriteFile where a directory is", sdk.CodeConflict)
	_, err = in.tryRead(sdk.ReadFileRequest{Path: "d"})
	c.refused(err, "ReadFile of a directory", sdk.CodeConflict)
}

// A name is any text without a slash.
func strangeNames(c *scene) {
	in := c.instance().files()
	for _, name := range []string{"with blank", "Grüße 世界 🎈", "-rf", "$HOME", "a'b\"c", "back\\slash", "*?[x]", "tab\tand\nline", ".hidden"} {
		in.write(name, name)
		in.holds(name, name)
		equal(c, in.stat(name).Path, "/workspace/"+name, "the path")
	}
}

// "CodeInvalidRequest with the field "path" for a path that cannot be" (Files)
func impossiblePaths(c *scene) {
	in := c.instance()
	_, err := c.StatFile(c.ctx, in.ID, "a\x00b")
	c.refused(err, "StatFile of a path with a zero byte", sdk.CodeInvalidRequest)
	_, err = c.StatFile(c.ctx, in.ID, strings.Repeat("x", 5000))
	c.refused(err, "StatFile of a path of 5000 bytes", sdk.CodeInvalidRequest, sdk.CodeNotFound)
}

// "one live sandbox": files are those of the instance.
func filesOfOneInstance(c *scene) {
	one, other := c.instance(), c.instance()
	one.files().write("secret.txt", "x")
	other.files().isAbsent("secret.txt")
	other.files().isOutOfReach("../" + one.ID + "/secret.txt")
}

// "no symbolic link, "..", device or name leads out." (Files) The state directory is
// a place of the host that every provider has and no instance.
func filesOfTheHost(c *scene) {
	in := c.instance().files()
	in.isOutOfReach(c.stateDir)
	in.isOutOfReach("../../../../../../.." + c.stateDir)
}

// isOutOfReach checks a path that leads nowhere: that there is nothing, or that the
// calls do not reach there.
func (in files) isOutOfReach(path string) {
	_, err := in.StatFile(in.ctx, in.ID, path)
	in.refused(err, "StatFile of "+path, sdk.CodeNotFound, sdk.CodeNotAllowed, sdk.CodeInvalidRequest)
}

// "Whoever reads closes the reader, at any time." (Files.ReadFile)
func readerIsClosed(c *scene) {
	in := c.instance().files()
	in.write("large.bin", strings.Repeat("x", 8<<20))
	for range 5 {
		_, reader, err := c.ReadFile(c.ctx, sdk.ReadFileRequest{InstanceID: in.ID, Path: "large.bin"})
		c.must(err, "read")
		_, err = io.ReadFull(reader, make([]byte, 10))
		c.must(err, "read ten bytes")
		c.must(reader.Close(), "close the reader")
	}
	in.prints(c.samples.Hello, "hello\n")
	c.must(c.RemoveFile(c.ctx, in.ID, "large.bin", false), "remove the file")
}
