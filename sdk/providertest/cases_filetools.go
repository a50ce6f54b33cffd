package providertest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func searchCases() []Case {
	const group = "file_search"
	return needing([]Case{
		{Group: group, Name: "lines that match are found, in the order of paths", run: searchFinds},
		{Group: group, Name: "a pattern is a regular expression, or plain text", run: searchPatterns},
		{Group: group, Name: "a search obeys its glob", run: searchGlob},
		{Group: group, Name: "a search obeys its limit and says so", run: searchLimit},
		{Group: group, Name: "files that are not text are passed over", run: searchBinary},
		{Group: group, Name: "a text is replaced and counted", run: replaces},
		{Group: group, Name: "a search in what is not there is not found", run: searchUnknown},
	}, sdk.CapabilityFileSearch, sdk.CapabilityFiles)
}

func (in files) search(req sdk.SearchFilesRequest) (matches []sdk.FileMatch, truncated bool) {
	req.InstanceID = in.ID
	if req.Limit == 0 {
		req.Limit = 1000
	}
	truncated, err := in.SearchFiles(in.ctx, req, func(found []sdk.FileMatch) error {
		matches = append(matches, found...)
		return nil
	})
	in.must(err, "search for %q", req.Pattern)
	return matches, truncated
}

// found shows where a search found something.
func found(matches []sdk.FileMatch) string {
	var paths []string
	for _, m := range matches {
		paths = append(paths, m.Path)
	}
	return below(paths)
}

// "SearchFiles passes on the lines that match, in the order of paths."
// (FileSearcher)
func searchFinds(c *scene) {
	in := c.tree()
	matches, truncated := in.search(sdk.SearchFilesRequest{Path: ".", Pattern: "content"})
	equal(c, found(matches), "a.py b.txt d/c.txt d/e/f.py z.txt", "where the text is")
	c.check(!truncated, "a search that found all counts as cut")
	matches, _ = in.search(sdk.SearchFilesRequest{Path: "b.txt", Pattern: "line"})
	equal(c, matches, []sdk.FileMatch{{Path: "/workspace/b.txt", Line: 2, Column: 8, Text: "second line"}}, "what matches in a file")
}

// "Pattern in RE2 syntax, or plain text if Literal is set." (SearchFilesRequest)
func searchPatterns(c *scene) {
	in := c.instance().files()
	in.write("f", "a.c\nabc\nABC\n")
	lines := func(req sdk.SearchFilesRequest) string {
		req.Path = "f"
		matches, _ := in.search(req)
		var texts []string
		for _, m := range matches {
			texts = append(texts, m.Text)
		}
		return strings.Join(texts, " ")
	}
	equal(c, lines(sdk.SearchFilesRequest{Pattern: "^a.c$"}), "a.c abc", "lines that match ^a.c$")
	equal(c, lines(sdk.SearchFilesRequest{Pattern: "a.c", Literal: true}), "a.c", "lines with the plain text a.c")
	equal(c, lines(sdk.SearchFilesRequest{Pattern: "abc", IgnoreCase: true}), "abc ABC", "lines with abc in any case")
	_, err := c.SearchFiles(c.ctx, sdk.SearchFilesRequest{InstanceID: in.ID, Path: "f", Pattern: "(", Limit: 1}, func([]sdk.FileMatch) error { return nil })
	c.refused(err, "SearchFiles for a pattern that is none", sdk.CodeInvalidRequest)
}

// "Glob selects files as in ListFilesRequest." (SearchFilesRequest)
func searchGlob(c *scene) {
	matches, _ := c.tree().search(sdk.SearchFilesRequest{Path: ".", Pattern: "content", Glob: "**/*.py"})
	equal(c, found(matches), "a.py d/e/f.py", "where the text is in **/*.py")
}

// "and says whether there were more than the limit." (FileSearcher)
func searchLimit(c *scene) {
	in := c.tree()
	matches, truncated := in.search(sdk.SearchFilesRequest{Path: ".", Pattern: "content", Limit: 2})
	equal(c, found(matches), "a.py b.txt", "the first two of five matches")
	c.check(truncated, "a search that was cut does not say so")
}

// "Files that are not text are passed over." (FileSearcher)
func searchBinary(c *scene) {
	in := c.instance().files()
	in.write("binary", "\x00\x01needle\xff\n")
	in.write("text", "needle\n")
	matches, _ := in.search(sdk.SearchFilesRequest{Path: ".", Pattern: "needle"})
	equal(c, found(matches), "text", "where the text is")
}

// "ReplaceInFiles replaces a text in files, each of them whole or not at all, and
// tells how often." (FileSearcher)
func replaces(c *scene) {
	in := c.instance().files()
	in.write("one", "a.a.a")
	in.write("other", "nothing")
	got, err := c.ReplaceInFiles(c.ctx, sdk.ReplaceInFilesRequest{InstanceID: in.ID, Paths: []string{"one", "other"}, Old: "a.", New: "$1"})
	c.must(err, "replace")
	equal(c, got, []sdk.FileReplacement{{Path: "/workspace/one", Count: 2}, {Path: "/workspace/other", Count: 0}}, "how often")
	in.holds("one", "$1$1a")
	in.holds("other", "nothing")
}

// "Errors are those of Files." (FileSearcher)
func searchUnknown(c *scene) {
	in := c.instance()
	_, err := c.SearchFiles(c.ctx, sdk.SearchFilesRequest{InstanceID: in.ID, Path: "absent", Pattern: "x", Limit: 1}, func([]sdk.FileMatch) error { return nil })
	c.refused(err, "SearchFiles in what is not there", sdk.CodeNotFound)
	_, err = c.ReplaceInFiles(c.ctx, sdk.ReplaceInFilesRequest{InstanceID: in.ID, Paths: []string{"absent"}, Old: "x", New: "y"})
	c.refused(err, "ReplaceInFiles in what is not there", sdk.CodeNotFound)
}

func watchCases() []Case {
	const group = "file_watch"
	return needing([]Case{
		{Group: group, Name: "changes are told", run: watchTells},
		{Group: group, Name: "what code changes is told", run: watchTellsOfCode},
		{Group: group, Name: "directories below are watched when asked for, new ones too", run: watchRecursive},
		{Group: group, Name: "it ends with its context", run: watchEnds},
		{Group: group, Name: "a directory that is not there is not found", run: watchUnknown},
	}, sdk.CapabilityFileWatch, sdk.CapabilityFiles)
}

// watched is a watch of the workspace.
type watched struct {
	trial   *trial
	changes <-chan sdk.FileChange
	ended   <-chan struct{}
	err     error // once ended is closed
}

// watch watches the workspace until the case ends.
func (in files) watch(recursive bool) *watched {
	ctx, cancel := context.WithCancel(in.ctx)
	changes, ready, ended := make(chan sdk.FileChange, 1000), make(chan struct{}), make(chan struct{})
	w := &watched{trial: in.trial, changes: changes, ended: ended}
	go func() {
		defer close(ended)
		w.err = in.WatchFiles(ctx, sdk.WatchFilesRequest{InstanceID: in.ID, Path: ".", Recursive: recursive},
			func() error { close(ready); return nil },
			func(list []sdk.FileChange) error {
				for _, change := range list {
					select {
					case changes <- change:
					default:
					}
				}
				return nil
			})
	}()
	in.later(func() {
		cancel()
		<-ended
	})
	select {
	case <-ready:
	case <-ended:
		in.fail("WatchFiles ended before it watched: %v", w.err)
	case <-in.ctx.Done():
		in.fail("WatchFiles did not say that it watches")
	}
	return w
}

// told waits for a change.
func (w *watched) told(path string, kinds ...sdk.FileChangeKind) {
	ctx, cancel := w.trial.within(settleTimeout)
	defer cancel()
	var others []string
	for {
		select {
		case change := <-w.changes:
			if change.Path == path && slices.Contains(kinds, change.Kind) {
				return
			}
			others = append(others, string(change.Kind)+" "+change.Path)
		case <-ctx.Done():
			w.trial.fail("nobody told that %s was %v; told was: %s", path, kinds, strings.Join(others, ", "))
		}
	}
}

// "WatchFiles calls ready once it watches, then changed for what changes below a
// directory." (FileWatcher)
func watchTells(c *scene) {
	in := c.instance().files()
	changes := in.watch(false)
	in.write("f", "x")
	changes.told("/workspace/f", sdk.FileCreated, sdk.FileModified, sdk.FileRenamed)
	c.must(c.RemoveFile(c.ctx, in.ID, "f", false), "remove")
	changes.told("/workspace/f", sdk.FileRemoved)
}

// The same, whoever changes it.
func watchTellsOfCode(c *scene) {
	in := c.instance().files()
	changes := in.watch(false)
	in.run(c.samples.Write).succeeded()
	changes.told("/workspace/providertest.txt", sdk.FileCreated, sdk.FileModified)
}

// "Recursive watches all directories below, those made later too."
// (WatchFilesRequest)
func watchRecursive(c *scene) {
	in := c.instance().files()
	changes := in.watch(true)
	_, err := c.MakeDirectory(c.ctx, in.ID, "new", 0o755)
	c.must(err, "make a directory")
	changes.told("/workspace/new", sdk.FileCreated)
	in.write("new/f", "x")
	changes.told("/workspace/new/f", sdk.FileCreated, sdk.FileModified)
}

// "until ctx ends" (FileWatcher)
func watchEnds(c *scene) {
	in := c.instance()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	err := c.WatchFiles(ctx, sdk.WatchFilesRequest{InstanceID: in.ID, Path: "."},
		func() error { cancel(); return nil }, func([]sdk.FileChange) error { return nil })
	c.check(isContextEnd(err), "WatchFiles whose context ended gave %v", err)
	in.prints(c.samples.Hello, "hello\n")
}

// "Errors are those of Files." (FileWatcher)
func watchUnknown(c *scene) {
	err := c.WatchFiles(c.ctx, sdk.WatchFilesRequest{InstanceID: c.instance().ID, Path: "absent"},
		func() error { return errors.New("it watches") }, func([]sdk.FileChange) error { return nil })
	c.refused(err, "WatchFiles of what is not there", sdk.CodeNotFound)
}

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

func (in files) setMode(path string, mode fs.FileMode) sdk.FileInfo {
	info, err := in.SetFileMode(in.ctx, in.ID, path, mode)
	in.must(err, "set the mode of %s", path)
	return info
}

// "SetFileMode sets the permission bits of a file or directory, all nine at once."
// (FileModeSetter)
func fileModeIsSet(c *scene) {
	in := c.instance().files()
	in.write("program", "x")
	for _, mode := range []fs.FileMode{0o755, 0o640} {
		info := in.setMode("program", mode)
		equal(c, info.Path, "/workspace/program", "the path")
		equal(c, info.Type, sdk.FileRegular, "the type")
		equal(c, info.Mode, mode, "the mode that is answered")
		equal(c, in.stat("program").Mode, mode, "the mode that was set")
	}
	in.holds("program", "x")
}

// "0 takes every right away. It needs to own the file, not to read it."
// (FileModeSetter)
func fileModeIsNone(c *scene) {
	in := c.instance().files()
	in.write("f", "x")
	equal(c, in.setMode("f", 0).Mode, fs.FileMode(0), "the mode that is answered")
	equal(c, in.stat("f").Mode, fs.FileMode(0), "the mode of a file without rights")
	equal(c, in.setMode("f", 0o600).Mode, fs.FileMode(0o600), "the mode that is answered")
	in.holds("f", "x")
}

// "of a file or directory" (FileModeSetter)
func fileModeOfDirectory(c *scene) {
	in := c.instance().files()
	in.write("d/f", "x", func(req *sdk.WriteFileRequest) { req.MakeParents = true })
	in.setMode("d", 0o711)
	equal(c, in.stat("d").Mode, fs.FileMode(0o711), "the mode of the directory")
	equal(c, in.stat("d/f").Mode, fs.FileMode(0o644), "the mode of the file in it")
}

// "A symbolic link at the end of the path is followed, and what it leads to is
// described." (FileModeSetter)
func fileModeThroughLink(c *scene) {
	in := c.instance().files()
	in.write("f", "x")
	in.python("import os\nos.symlink('f', 'link')\n")
	info := in.setMode("link", 0o751)
	equal(c, info.Type, sdk.FileRegular, "the type")
	equal(c, info.Mode, fs.FileMode(0o751), "the mode that is answered")
	equal(c, in.stat("f").Mode, fs.FileMode(0o751), "the mode of what the link leads to")
	equal(c, in.stat("link").Type, sdk.FileSymlink, "what the link is")
}

// "Paths, rights and errors are those of Files." (FileModeSetter)
func fileModeOfNothing(c *scene) {
	in := c.instance()
	_, err := c.SetFileMode(c.ctx, in.ID, "absent", 0o644)
	c.refused(err, "SetFileMode of what is not there", sdk.CodeNotFound)
	_, err = c.SetFileMode(c.ctx, in.ID, strings.Repeat("x", 5000), 0o644)
	c.refused(err, "SetFileMode of a path of 5000 bytes", sdk.CodeInvalidRequest, sdk.CodeNotFound)
}

// "Paths, rights and errors are those of Files." (FileModeSetter)
func fileModeOfTheHost(c *scene) {
	in := c.instance()
	for _, path := range []string{c.stateDir, "../../../../../../.." + c.stateDir} {
		_, err := c.SetFileMode(c.ctx, in.ID, path, 0o755)
		c.refused(err, "SetFileMode of "+path, sdk.CodeNotFound, sdk.CodeNotAllowed, sdk.CodeInvalidRequest)
	}
}
