package artifacts_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/guestfiles"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// files are those of a sandbox, by their names below the workspace, with their content.
type files map[string]string

func (f files) Do(_ context.Context, _ string, req guestfiles.Request) (a guestfiles.Answer, err error) {
	for name, content := range f {
		if req.Op == guestfiles.List || strings.HasPrefix(name, "artifacts/") {
			a.Files = append(a.Files, guestfiles.File{Below: name, Type: "file", Size: int64(len(content))})
		}
	}
	for _, name := range req.Names {
		size := int64(-1)
		if content, there := f[name]; there {
			size = int64(len(content))
		}
		a.Sizes = append(a.Sizes, size)
	}
	return a, nil
}

func (f files) Open(_ context.Context, _, name string, _, _ int64) (io.ReadCloser, error) {
	content := f[strings.TrimPrefix(name, "/workspace/")]
	if content == "gone" {
		return nil, sdk.Errorf(sdk.CodeNotFound, "no such file")
	}
	return io.NopCloser(strings.NewReader(content + " and more")), nil
}

func (f files) Fill(context.Context, string, guestfiles.Request, io.Reader) error { return nil }

// heard is an sdk.Output that remembers artifacts, each as its name and content, or why not.
type heard []string

func (h *heard) Stdout([]byte) error { return nil }
func (h *heard) Stderr([]byte) error { return nil }

func (h *heard) Artifact(a sdk.Artifact) error {
	*h = append(*h, a.Name+": "+string(a.Data)+a.Refused)
	return nil
}

func TestWhatWasAskedForComesBeforeWhatWasMade(t *testing.T) {
	limits := &sdk.ArtifactLimits{MaxCount: 9, MaxBytes: 10, MaxTotalBytes: 12}
	sandbox := files{"c.bin": "c", "a.txt": "a", "deep/b.txt": "b", "artifacts/old": "o", "large": "more than ten", "artifacts/big": "just ten  ", "late": "gone"}
	for name, c := range map[string]struct {
		asked  []string
		made   files
		want   string
		before artifacts.Marks
	}{
		"what was made alone":         {made: files{"artifacts/new": "n", "artifacts/a": "x"}, want: "artifacts/a: x|artifacts/new: n"},
		"names, then patterns":        {asked: []string{"**/*.txt", "c.bin", "*.none"}, made: files{"artifacts/new": "n"}, want: "c.bin: c|a.txt: a|deep/b.txt: b|*.none: matches no file|artifacts/new: n"},
		"a path of the workspace":     {asked: []string{"/workspace/c.bin"}, want: "c.bin: c"},
		"what is not there":           {asked: []string{"none"}, want: "none: there is no such regular file"},
		"what is gone since":          {asked: []string{"late"}, want: "late: the file is gone"},
		"a file that is too large":    {asked: []string{"large"}, want: "large: the file is too large; it can be read as a file"},
		"files that are so together":  {asked: []string{"artifacts/big", "c.bin", "a.txt", "deep/b.txt"}, want: "artifacts/big: just ten  |c.bin: c|a.txt: a|deep/b.txt: the file is too large beside the artifacts before it; it can be read as a file"},
		"a name and its pattern":      {asked: []string{"c.*", "c.bin"}, want: "c.bin: c"},
		"a pattern of what was made":  {asked: []string{"artifacts/n*"}, made: files{"artifacts/new": "n"}, want: "artifacts/new: n"},
		"what has changed meanwhile":  {made: files{"artifacts/old": "other"}, want: "artifacts/old: other"},
		"what looks like it did then": {want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			limits := *limits
			limits.Files = c.asked
			before, err := artifacts.Finder{Store: sandbox}.Before(t.Context(), &limits)
			assert.NilError(t, err)
			after := files{}
			for _, all := range []files{sandbox, c.made} {
				for name, content := range all {
					after[name] = content
				}
			}
			var out heard
			assert.NilError(t, artifacts.Finder{Store: after}.SendNew(t.Context(), before, &limits, &out))
			assert.Equal(t, strings.Join(out, "|"), c.want)
		})
	}
}

func TestASupervisorIsToldNamesAndNoPatterns(t *testing.T) {
	assert.Assert(t, artifacts.Wanted(nil) == nil)
	got := artifacts.Wanted(&sdk.ArtifactLimits{MaxCount: 3, Files: []string{"a//b", "*.x", "/workspace/c"}})
	assert.DeepEqual(t, got, &supervise.Artifacts{Files: []string{"a/b", "c"}, Most: 3})
}
