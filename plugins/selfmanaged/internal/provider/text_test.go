package provider

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// badNames are what unpacking an archive of another system's leaves, and worse.
var badNames = []string{`\xb1\xa8.csv`, `a\xff`, `\xed\xa0\x80.txt`, `cut \xe2\x82`, `\xc0\xaf`}

// pythonNames is a list of them in Python.
func pythonNames() string { return "[b'" + strings.Join(badNames, "', b'") + "']" }

// Whatever is no UTF-8 in a sandbox is shown as such, and costs nothing else.
func TestWhatIsNoTextCostsNothingElse(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	c := newContext(t, p, id, sdk.Python)
	const said = "an hour of work\n"
	makeFiles := func(directory string) string {
		return fmt.Sprintf(`
import os
os.makedirs(%[1]q, exist_ok=True)
for name in %[2]s:
    with open(os.path.join(%[1]q.encode(), name), "wb") as f: f.write(b"needle")
print("an hour of work")
`, directory, pythonNames())
	}
	limits := func(files ...string) *sdk.ArtifactLimits {
		return &sdk.ArtifactLimits{Files: files, MaxCount: 20, MaxBytes: 1 << 20, MaxTotalBytes: 1 << 20}
	}
	for name, req := range map[string]sdk.ExecuteRequest{
		"artifacts by themselves":            {Language: sdk.Python, Code: makeFiles("artifacts"), Artifacts: limits()},
		"artifacts of a context":             {ContextID: c.ID, Code: makeFiles("artifacts"), Artifacts: limits()},
		"artifacts by a pattern":             {Language: sdk.Python, Code: makeFiles("asked"), Artifacts: limits("asked/*")},
		"in a directory of such a name":      {Language: sdk.Bash, Code: `mkdir -p $'artifacts/\xb1'; for i in 1 2 3 4 5; do echo needle > $'artifacts/\xb1/'$i; done; echo an hour of work`, Artifacts: limits()},
		"artifacts that are links to such":   {Language: sdk.Bash, Code: `mkdir -p linked; for i in 1 2 3 4 5; do ln -s $'\xb1' linked/$i; done; echo an hour of work`, Artifacts: limits("linked/1", "linked/2", "linked/3", "linked/4", "linked/5")},
		"artifacts that cannot be read, too": {Language: sdk.Bash, Code: `mkdir -p artifacts; for i in 1 2 3 4 5; do head -c 2000000 /dev/zero > $'artifacts/\xb1'$i; done; echo an hour of work`, Artifacts: limits()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "rm -rf artifacts asked"})
			assert.NilError(t, err)
			req.InstanceID = id
			o, err := execute(t, p, req)
			assert.NilError(t, err)
			assert.Equal(t, o.stdout, said)
			assert.Equal(t, len(o.artifacts), len(badNames))
			for _, a := range o.artifacts {
				assert.Check(t, utf8.ValidString(a.Name) && utf8.ValidString(a.MIMEType) && utf8.ValidString(a.Refused), "%q", a)
				assert.Check(t, a.Refused != "" || strings.HasPrefix(string(a.Data), "needle"), "%q", a)
			}
		})
	}

	// A frame whose text is cut between two bytes of a character.
	forged := func(header string) string {
		return "import os, json\nfd = 4\nos.write(fd, json.dumps({" + header + ", 'length': 0, 'execution': 1}).encode() + b'\\n')\nprint('an hour of work')"
	}
	for name, header := range map[string]string{
		"a refusal":   `'kind': 'display', 'mime': 'text/plain', 'group': 1, 'refused': 'x' * 199 + 'é'`,
		"a MIME type": `'kind': 'display', 'mime': 'x' * 199 + 'é', 'group': 1`,
	} {
		t.Run("text that is cut: "+name, func(t *testing.T) {
			o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: forged(header), Artifacts: limits()})
			assert.NilError(t, err)
			assert.Equal(t, o.stdout, said)
		})
	}

	t.Run("the files themselves", func(t *testing.T) {
		_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: makeFiles("files") + "os.mkdir('unpacked'); os.symlink(b'\\xb1', b'files/link')"})
		assert.NilError(t, err)
		files := 0
		_, err = p.ListFiles(t.Context(), sdk.ListFilesRequest{InstanceID: id, Path: "files", Depth: 9, Limit: 100}, func(list []sdk.FileInfo) error {
			files += len(list)
			return nil
		})
		assert.NilError(t, err)
		assert.Equal(t, files, len(badNames)+1)
		matches := 0
		_, err = p.SearchFiles(t.Context(), sdk.SearchFilesRequest{InstanceID: id, Path: "files", Pattern: "needle", Limit: 100}, func(list []sdk.FileMatch) error {
			matches += len(list)
			return nil
		})
		assert.NilError(t, err)
		assert.Equal(t, matches, len(badNames))
		archive, err := p.ReadArchive(t.Context(), sdk.ReadArchiveRequest{InstanceID: id, Directory: "files"})
		assert.NilError(t, err)
		content, err := io.ReadAll(archive)
		assert.NilError(t, err)
		assert.NilError(t, archive.Close())
		assert.Check(t, is.Contains(string(content), "\xb1\xa8.csv"), "names in an archive are bytes")
		_, err = p.WriteArchive(t.Context(), id, "unpacked", strings.NewReader(string(content)))
		assert.NilError(t, err)
	})

	t.Run("changes that are watched", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		var seen []string
		err := p.WatchFiles(ctx, sdk.WatchFilesRequest{InstanceID: id, Path: ".", Recursive: true}, func() error {
			_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: `touch $'\xb1'; mv $'\xb1' $'\xb2'; rm $'\xb2'; touch last`})
			return err
		}, func(changes []sdk.FileChange) error {
			for _, change := range changes {
				assert.Check(t, utf8.ValidString(change.Path), "%q", change)
				seen = append(seen, change.Path)
			}
			if slices.Contains(seen, "/workspace/last") || slices.Contains(seen, "last") {
				cancel()
			}
			return nil
		})
		assert.ErrorIs(t, err, context.Canceled)
	})

	t.Run("what a command, an interpreter and an error say", func(t *testing.T) {
		printed := runCommand(t, p, shell(id, `printf '\xb1'; printf '\xb2' >&2; exec -a $'\xb3' false`))
		assert.Equal(t, printed.stdout+printed.stderr, "\xb1\xb2")
		o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: `import os; os.environb[b"\xb1"] = b"\xb2"; os.write(2, b"\xb1"); os.mkdir(b"\xb1"); os.chdir(b"\xb1"); raise ValueError(os.listdir(b".."))`})
		assert.NilError(t, err)
		assert.Equal(t, o.Status, sdk.StatusFailed)
		_, err = p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"\xb1"}, KeepOutput: 1})
		assert.Assert(t, err != nil)
		_, err = p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"true"}, Cwd: "\uFFFD", KeepOutput: 1})
		assert.Assert(t, utf8.ValidString(err.Error()))
		o = c.run(`raise SystemExit(b"\xb1".decode(errors="surrogateescape"))`)
		assert.Equal(t, o.Status, sdk.StatusFailed)
	})

	o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print('fine')"})
	assert.NilError(t, err)
	assert.Equal(t, o.stdout, "fine\n", "the instance is as well as before")
}
