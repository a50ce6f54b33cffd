package providertest

import (
	"io/fs"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func fileModeCases() []Case {
	const group = "file_mode"
	return needing([]Case{
		{Group: group, Name: "a file has the mode that was set", run: fileModeIsSet},
		{Group: group, Name: "every right can be taken away and given back", run: fileModeIsNone},
		{Group: group, Name: "a directory has the mode that was set, and what is in it its own", run: fileModeOfDirectory},
		{Group: group, Name: "a symbolic link is followed", run: fileModeThroughLink},
		{Group: group, Name: "what is not there is not found", run: fileModeOfNothing},
		{Group: group, Name: "no path leads to the host", run: fileModeOfTheHost},
	}, sdk.CapabilityFileMode, sdk.CapabilityFiles)
}

func (c *scene) setMode(id, path string, mode fs.FileMode) sdk.FileInfo {
	info, err := c.SetFileMode(c.ctx, id, path, mode)
	c.must(err, "set the mode of %s", path)
	return info
}

// "SetFileMode sets the permission bits of a file or directory, all nine at once."
// (FileModeSetter)
func fileModeIsSet(c *scene) {
	id := c.instance()
	c.write(id, "program", "x")
	for _, mode := range []fs.FileMode{0o755, 0o640} {
		info := c.setMode(id, "program", mode)
		equal(c, info.Path, "/workspace/program", "the path")
		equal(c, info.Type, sdk.FileRegular, "the type")
		equal(c, info.Mode, mode, "the mode that is answered")
		equal(c, c.stat(id, "program").Mode, mode, "the mode that was set")
	}
	c.holds(id, "program", "x")
}

// "0 takes every right away. It needs to own the file, not to read it."
// (FileModeSetter)
func fileModeIsNone(c *scene) {
	id := c.instance()
	c.write(id, "f", "x")
	equal(c, c.setMode(id, "f", 0).Mode, fs.FileMode(0), "the mode that is answered")
	equal(c, c.stat(id, "f").Mode, fs.FileMode(0), "the mode of a file without rights")
	equal(c, c.setMode(id, "f", 0o600).Mode, fs.FileMode(0o600), "the mode that is answered")
	c.holds(id, "f", "x")
}

// "of a file or directory" (FileModeSetter)
func fileModeOfDirectory(c *scene) {
	id := c.instance()
	c.write(id, "d/f", "x", func(req *sdk.WriteFileRequest) { req.MakeParents = true })
	c.setMode(id, "d", 0o711)
	equal(c, c.stat(id, "d").Mode, fs.FileMode(0o711), "the mode of the directory")
	equal(c, c.stat(id, "d/f").Mode, fs.FileMode(0o644), "the mode of the file in it")
}

// "A symbolic link at the end of the path is followed, and what it leads to is
// described." (FileModeSetter)
func fileModeThroughLink(c *scene) {
	id := c.instance()
	c.write(id, "f", "x")
	c.python(id, "import os\nos.symlink('f', 'link')\n")
	info := c.setMode(id, "link", 0o751)
	equal(c, info.Type, sdk.FileRegular, "the type")
	equal(c, info.Mode, fs.FileMode(0o751), "the mode that is answered")
	equal(c, c.stat(id, "f").Mode, fs.FileMode(0o751), "the mode of what the link leads to")
	equal(c, c.stat(id, "link").Type, sdk.FileSymlink, "what the link is")
}

// "Paths, rights and errors are those of Files." (FileModeSetter)
func fileModeOfNothing(c *scene) {
	id := c.instance()
	_, err := c.SetFileMode(c.ctx, id, "absent", 0o644)
	c.refused(err, "SetFileMode of what is not there", sdk.CodeNotFound)
	_, err = c.SetFileMode(c.ctx, id, strings.Repeat("x", 5000), 0o644)
	c.refused(err, "SetFileMode of a path of 5000 bytes", sdk.CodeInvalidRequest, sdk.CodeNotFound)
}

// "Paths, rights and errors are those of Files." (FileModeSetter)
func fileModeOfTheHost(c *scene) {
	id := c.instance()
	for _, path := range []string{c.stateDir, "../../../../../../.." + c.stateDir} {
		_, err := c.SetFileMode(c.ctx, id, path, 0o755)
		c.refused(err, "SetFileMode of "+path, sdk.CodeNotFound, sdk.CodeNotAllowed, sdk.CodeInvalidRequest)
	}
}
