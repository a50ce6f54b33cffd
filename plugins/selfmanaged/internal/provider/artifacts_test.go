package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// kinds is what artifacts are, without what they hold.
func (o outcome) kinds() []string {
	var list []string
	for _, a := range o.artifacts {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", a.Group, a.Kind, a.MIMEType, a.Refused)))
	}
	return list
}

// wanting asks for artifacts.
func wanting(r *sdk.ExecuteRequest) {
	r.Artifacts = &sdk.ArtifactLimits{MaxCount: 20, MaxBytes: 4 << 20, MaxTotalBytes: 16 << 20}
}

func TestFiguresAndTablesOfTheRealLibraries(t *testing.T) {
	tier.Full(t)
	t.Run("in a directory", func(t *testing.T) {
		testCharts(t, testFigures(t, newProvider(t, map[string]any{"rootfs": binaries.Rootfs(t)})))
	})
	t.Run("in an image", func(t *testing.T) { testFigures(t, onDocker(dockerengine.Find(t))(t, nil)) })
}

// chartType is the media type of what is in a figure.
const chartType = "application/vnd.e2b.chart+json"

// figure is the forms of one.
func figure(group int, kind string) []string {
	var forms []string
	for _, form := range []string{"image/png", "image/svg+xml", chartType} {
		forms = append(forms, fmt.Sprintf("%d %s %s", group, kind, form))
	}
	return forms
}

// drawings is a figure with one of each kind that there is a chart for, and some for
// which there is none. Their ticks are set, since each version of the library sets others.
const drawings = `
import datetime, numpy
figure, axes = plt.subplots(3, 5, figsize=(6, 4), dpi=40)
axes = iter(axes.flat)
def at(ax=None, x=[], y=[]):
    plt.sca(ax or next(axes)); plt.xticks(x); plt.yticks(y)
at(); plt.plot([1, 2, 3], [1, 4, float("nan")], label="a ✓"); plt.plot(numpy.array([10, 20])); plt.axhline(2)
plt.title("Lines"); plt.xlabel("Time (s)"); plt.ylabel("Money [EUR]"); plt.yscale("log"); plt.xticks([1, 2], ["1", "2"]); plt.yticks([1, 10], ["one", "ten"])
at(); plt.plot([datetime.date(2026, 1, 1), datetime.date(2026, 1, 3)], [1, 2]); plt.xticks([datetime.date(2026, 1, 1)], ["new year"])
at(); plt.plot(["tea", "milk"], [3, 1]); plt.xticks([0, 1], ["tea", "milk"])
at(); plt.scatter([1, 2], [3, 4.5], label="dots"); plt.grid(); plt.xticks([1], ["1"])
at(); plt.scatter([datetime.datetime(2026, 1, 1)], [1])
at(); plt.bar([0, 1], [1, 2], label="first"); plt.bar([0, 1], [3, 2.5], bottom=[1, 2]); plt.xticks([0, 1], ["a", "b"])
at(); plt.barh([0, 1], [2, 2]); plt.yticks([0], ["a"]); plt.xlabel("Length (m)")
at(); plt.pie([1, 3], labels=["x", "y"]); plt.title("Pie")
values = [[1, 2, 3, 4, 5, 20, 30, 100], [2, 3, 4, 5, 6, -20]]
at(); plt.boxplot(values, patch_artist=True, showmeans=True); plt.xticks([1, 2], ["left", "right"]); plt.ylabel("v")
at(); plt.boxplot(values[:1], patch_artist=True, vert=False); plt.yticks([1], ["lying"]); plt.xlabel("v")
at(); plt.imshow([[1, 2]])
at(); plt.fill_between([1, 2], [1, 2])
at(); plt.boxplot(values, patch_artist=True, notch=True)
next(axes).remove(); at(figure.add_subplot(3, 5, 14, projection="polar")); plt.plot([1, 2])
figure.suptitle("All");
`

// testFigures returns a context that knows plt.
func testFigures(t *testing.T, p testProvider) inContext {
	t.Helper()
	instance := create(t, p, templatePython)
	plain := func(code string) outcome {
		t.Helper()
		req := sdk.ExecuteRequest{InstanceID: instance, Language: sdk.Python, Code: code, Timeout: time.Minute}
		wanting(&req)
		o, err := execute(t, p, req)
		assert.NilError(t, err)
		assert.Equal(t, o.stderr, "")
		return o
	}
	slow := func(r *sdk.ExecuteRequest) { r.Timeout = time.Minute }
	o := plain("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.figure()\nplt.bar([1], [2])")
	assert.DeepEqual(t, o.kinds(), slices.Concat(figure(1, "display"), figure(2, "display")))
	for i, a := range o.artifacts {
		switch i % 3 {
		case 0:
			assert.Assert(t, bytes.HasPrefix(a.Data, []byte("\x89PNG\r\n\x1a\n")))
		case 1:
			assert.Assert(t, bytes.HasPrefix(a.Data, []byte("<?xml")) && bytes.HasSuffix(a.Data, []byte("</svg>\n")), "%.100s", a.Data)
		case 2:
			assert.Assert(t, json.Valid(a.Data), "%.100s", a.Data)
		}
	}
	// What has too many points has no chart, and that is no failure.
	o = plain("import matplotlib.pyplot as plt\nplt.scatter(range(100_000), range(100_000))")
	assert.DeepEqual(t, o.kinds(), []string{"1 display image/png", "1 display image/svg+xml larger than 4194304 bytes"})
	o = plain("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint(plt.get_fignums())\nplt.plot([3])\nplt.close()")
	assert.DeepEqual(t, o.kinds(), figure(1, "display"))
	assert.Equal(t, o.stdout, "[]\n")
	assert.DeepEqual(t, plain("from matplotlib.figure import Figure\nf = Figure(); f.add_subplot().plot([1])\ndisplay(f)").kinds(), figure(1, "display"))

	c := newContext(t, p, instance, sdk.Python)
	assert.DeepEqual(t, c.run("import matplotlib.pyplot as plt, pandas\nplt.plot([1, 2]);", slow).kinds(), figure(1, "display"))
	assert.Assert(t, is.Len(c.run("1;", slow).kinds(), 0), "a figure is shown once")
	o = c.run("pandas.DataFrame({'a': [1, 2]})", slow)
	assert.DeepEqual(t, o.kinds(), []string{"1 result text/plain", "1 result text/html"})
	assert.Check(t, is.Contains(string(o.artifacts[1].Data), "<th>a</th>"))
	assert.DeepEqual(t, c.run("fig, ax = plt.subplots(); ax.plot([1]); plt.close(fig); fig", slow).kinds(), figure(1, "result"))
	assert.Equal(t, c.run("import subprocess, sys; subprocess.run([sys.executable, '-c', 'import matplotlib; print(matplotlib.get_backend().lower())'], capture_output=True, text=True).stdout", slow).value(), `'agg\n'`)
	return c
}

func testCharts(t *testing.T, c inContext) {
	t.Helper()
	slow := func(r *sdk.ExecuteRequest) { r.Timeout = time.Minute }
	o := c.run(drawings, slow)
	assert.Equal(t, o.stderr, "")
	assert.DeepEqual(t, o.kinds()[:3], figure(1, "display"))
	golden.Assert(t, strings.ReplaceAll(string(o.artifacts[2].Data), `{"type"`, "\n"+`{"type"`)+"\n", "charts.golden")
	// A chart is told where there is room for the pictures of all figures beside it.
	fewer := func(r *sdk.ExecuteRequest) {
		slow(r)
		r.Artifacts = &sdk.ArtifactLimits{MaxCount: 5, MaxBytes: 4 << 20, MaxTotalBytes: 16 << 20}
	}
	assert.DeepEqual(t, c.run("for _ in range(2): plt.figure(); plt.plot([1])", fewer).kinds(), slices.Concat(figure(1, "display"), figure(2, "display")[:2]))
	smaller := func(r *sdk.ExecuteRequest) {
		slow(r)
		r.Artifacts = &sdk.ArtifactLimits{MaxCount: 20, MaxBytes: 100 << 10, MaxTotalBytes: 16 << 20}
	}
	assert.DeepEqual(t, c.run("plt.plot(range(9000)); plt.axis('off');", smaller).kinds(), figure(1, "display")[:2])
	o = c.run("fig, ax = plt.subplots(); ax.plot([1]); ax.get_title = None; plt.close(fig); fig", slow)
	assert.Equal(t, o.stderr, "", "that a chart cannot be made is no failure")
	assert.DeepEqual(t, o.kinds(), figure(1, "result")[:2])
}

// likeMatplotlib stands where the library is looked for. Its figures are as large
// as a test wants.
const likeMatplotlib = `
import pathlib
here = pathlib.Path("/workspace/matplotlib")
here.mkdir()
(here / "__init__.py").write_text("")
(here / "figure.py").write_text("""
class Figure:
    def __init__(self, png=1, svg=1):
        self.sizes = {"png": png, "svg": svg}
    def savefig(self, file, format, bbox_inches):
        for _ in range(self.sizes[format]):
            file.write(b"x")
""")
(here / "pyplot.py").write_text("""
from matplotlib.figure import Figure
open_figures = []
def show_at_the_end(*sizes):
    open_figures.extend(Figure(*size) for size in sizes)
def get_fignums(): return list(range(len(open_figures)))
def figure(number): return open_figures[number]
def close(what): open_figures.clear()
""")
`

func TestFiguresHaveTwoFormsWhileThereIsRoom(t *testing.T) { inTheGuest(t, testRoomForFigures) }

func testRoomForFigures(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	c := newContext(t, p, create(t, p, templatePython), sdk.Python)
	c.run(likeMatplotlib)
	limits := func(r *sdk.ExecuteRequest) {
		r.Artifacts = &sdk.ArtifactLimits{MaxCount: 5, MaxBytes: 10, MaxTotalBytes: 20}
	}
	const png, svg = "display image/png", "display image/svg+xml"
	for name, test := range map[string]struct {
		sizes string // of the PNG and the SVG of each figure
		want  []string
	}{
		"both of each":                         {"(1, 2), (3, 4)", []string{"1 " + png, "1 " + svg, "2 " + png, "2 " + svg}},
		"a PNG of all comes before an SVG":     {"(1, 1), (1, 1), (1, 1)", []string{"1 " + png, "1 " + svg, "2 " + png, "2 " + svg, "3 " + png}},
		"as many PNG as may be":                {"(1, 1), (1, 1), (1, 1), (1, 1), (1, 1)", []string{"1 " + png, "2 " + png, "3 " + png, "4 " + png, "5 " + png}},
		"an SVG that is too large is told":     {"(1, 100_000_000), (1, 1)", []string{"1 " + png, "1 " + svg + " larger than 10 bytes", "2 " + png, "2 " + svg}},
		"bytes are left for the PNG of others": {"(6, 9), (6, 2), (6, 1)", []string{"1 " + png, "2 " + png, "2 " + svg, "3 " + png}},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.run("import matplotlib.pyplot\nmatplotlib.pyplot.show_at_the_end("+test.sizes+")", limits)
			assert.Equal(t, o.stderr, "")
			assert.DeepEqual(t, o.kinds(), test.want)
			for _, a := range o.artifacts {
				assert.Check(t, a.Refused != "" || a.Size == int64(len(a.Data)))
			}
		})
	}
	assert.DeepEqual(t, c.run("matplotlib.pyplot.Figure(2, 3)", limits).kinds(), []string{"1 result image/png", "1 result image/svg+xml"})
	none := func(r *sdk.ExecuteRequest) { r.Artifacts = nil }
	assert.Assert(t, is.Len(c.run("matplotlib.pyplot.Figure(2, 3)", none).kinds(), 0))
}

func TestRichValuesAreArtifactsWithinBounds(t *testing.T) { inTheGuest(t, testRichValues) }

func testRichValues(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	instance := create(t, p, templatePython)
	c := newContext(t, p, instance, sdk.Python)
	o := c.run(`
class Rich:
    def __repr__(self): return 'plain'
    def _repr_html_(self): return '<b>'
    def _repr_png_(self): return b'\x89PNG'
    def _repr_json_(self): return {'a': 1}, {'metadata': True}
    def _repr_svg_(self): raise ValueError('no picture')
    def _repr_markdown_(self): return None
    def _repr_mimebundle_(self, include=None, exclude=None): return {'application/x': 'text', 'image/gif': 'R0lG', 'text/html': '<i>'}
Rich()`)
	got := map[string]string{}
	for _, a := range o.artifacts {
		got[a.MIMEType] = string(a.Data)
	}
	assert.DeepEqual(t, got, map[string]string{
		"text/plain": "plain", "text/html": "<i>", "image/png": "\x89PNG", "application/json": `{"a": 1}`, "application/x": "text", "image/gif": "GIF",
	})
	assert.Check(t, is.Contains(o.stderr, "ValueError: no picture"))
	assert.Equal(t, o.Status, sdk.StatusSucceeded)
	o = c.run("class Bad:\n    def __repr__(self): raise ValueError('no text')\nBad()")
	assert.Check(t, is.Contains(o.value(), "<__main__.Bad object at 0x"))
	assert.DeepEqual(t, c.run("from unittest.mock import MagicMock; MagicMock(name='m')").kinds(), []string{"1 result text/plain"})
	// A class is no object of its own.
	assert.DeepEqual(t, c.run("class A:\n    def _repr_html_(self): return 'x'\nA").kinds(), []string{"1 result text/plain"})

	few := func(r *sdk.ExecuteRequest) {
		r.Artifacts = &sdk.ArtifactLimits{MaxCount: 3, MaxBytes: 10, MaxTotalBytes: 15}
	}
	assert.DeepEqual(t, c.run("display('x' * 50)\nfor i in range(100): display(1)", few).kinds(), []string{
		"1 display text/plain larger than 10 bytes", "2 display text/plain", "3 display text/plain", "4 display  more than 3 artifacts: the rest is left out",
	})
	assert.DeepEqual(t, c.run("display('12345678'); display('12345678')", few).kinds(), []string{
		"1 display text/plain", "2 display text/plain more than 15 bytes with the artifacts before it",
	})
	none := func(r *sdk.ExecuteRequest) { r.Artifacts = nil }
	o = c.run("display(1); 2", none)
	assert.Equal(t, o.Status, sdk.StatusSucceeded)
	assert.Assert(t, is.Len(o.artifacts, 0))

	// What code writes into the runner's channel is its own affair, up to the limits.
	forged := c.run(`
import inspect, json, os, re
own = int(re.search(r'\d+', inspect.currentframe().f_code.co_filename).group())
def frame(data=b'', execution=own, **header):
    header.update(length=len(data), execution=execution)
    os.write(4, json.dumps(header).encode() + b'\n' + data)
frame(b'forged', kind='display', mime='text/plain', group=1)
frame(b'old', execution=1, kind='display', mime='text/plain', group=1)
frame(b'x', kind='file', mime='text/plain', group=1, name='/etc/passwd')
frame(b'x', kind='display', mime='', group=1)
frame(b'x', kind='display', mime='m' * 1000, group=1)
frame(b'x', kind='display', mime='a/b', group=-1)
frame(b'no json', kind='value')
frame(b'x' * 5_000_000, kind='display', mime='a/b', group=2)
`, wanting)
	assert.Assert(t, forged.Result == nil)
	assert.DeepEqual(t, forged.kinds(), []string{"1 display text/plain", "2 display a/b larger than 4194304 bytes"})
	assert.Equal(t, string(forged.artifacts[0].Data), "forged")
}

func TestWhatThreadsPrintLaterIsNobodys(t *testing.T) { inTheGuest(t, testThreads) }

func testThreads(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	c := newContext(t, p, create(t, p, templatePython), sdk.Python)
	o := c.run(`
import threading
go, printed = threading.Event(), threading.Event()
def late():
    go.wait()
    print('late ' * 40_000)  # more than a pipe holds
    printed.set()
threading.Thread(target=late, daemon=True).start()
import sys
class Slow:
    def __repr__(self):
        print('own', flush=True)
        return 'slow'
threading.Timer(0.05, go.set).start()
Slow()`)
	assert.Check(t, is.Contains(o.stdout, "own\n"))
	o = c.run("printed.wait(10)")
	assert.Equal(t, o.value(), "True", "a thread is never stuck on a pipe that nobody reads")
	assert.Equal(t, c.run("print('now')").stdout, "now\n")
}

func TestAContextThatUsesTooMuchMemory(t *testing.T) {
	p := newProvider(t, nil)
	instance := create(t, p, templatePython)
	kept := newContext(t, p, instance, sdk.Python)
	kept.run("x = 1")
	c := newContext(t, p, instance, sdk.Python)
	o := c.run(overrun(p), func(r *sdk.ExecuteRequest) { r.Timeout = time.Minute })
	assert.Equal(t, o.Status, sdk.StatusOutOfMemory)
	assert.Check(t, is.Contains(o.Detail, "the context starts afresh"))
	assert.Equal(t, c.run("'x' in globals()").value(), "False")
	assert.Equal(t, kept.run("x").value(), "1")
}

func TestTheCodePolicyHoldsInContexts(t *testing.T) {
	p := newProvider(t, map[string]any{"policy": "enforce"})
	instance := create(t, p, templatePython)
	for language, codes := range map[sdk.Language][3]string{
		sdk.Python:     {"x = 1", "x = 2\nimport ctypes", "x"},
		sdk.JavaScript: {"let x = 1", "x = 2; require('fs')", "x"},
	} {
		c := newContext(t, p, instance, language)
		c.run(codes[0])
		o := c.run(codes[1])
		assert.Check(t, is.Equal(o.Status, sdk.StatusBlocked))
		assert.Check(t, is.Equal(o.ExitCode, 126))
		assert.Check(t, is.Len(o.Findings, 1))
		assert.Check(t, is.Equal(c.run(codes[2]).value(), "1"), "none of it ran")
	}
}
