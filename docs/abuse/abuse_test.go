package abuse_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/docs/abuse"
	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const root = "../.."

// have expects one line for each name, and no line for a name that is none. To mend it,
// say in a line who may abuse the route, setting or header, and what stops that.
func have(t *testing.T, kind abuse.Kind, names []string) {
	t.Helper()
	lines := map[string]int{}
	for _, l := range kind.Lines {
		for _, name := range l.Of {
			lines[folded(name)]++
			assert.Check(t, lines[folded(name)] == 1, "%s: %s has two lines", kind.Title, name)
		}
	}
	for _, name := range names {
		assert.Check(t, lines[folded(name)] > 0, "%s: nobody has said in docs/abuse who may abuse %s", kind.Title, name)
	}
	known := map[string]bool{}
	for _, name := range names {
		known[folded(name)] = true
	}
	for _, l := range kind.Lines {
		for _, name := range l.Of {
			assert.Check(t, known[folded(name)], "%s: there is no %s (any more)", kind.Title, name)
		}
	}
}

func TestEveryRouteSaysWhoMayAbuseIt(t *testing.T) {
	have(t, abuse.Routes(), operations(t))
}

func operations(t *testing.T) (ids []string) {
	t.Helper()
	for _, operations := range document(t).Paths {
		for _, operation := range operations {
			ids = append(ids, operation.OperationID)
		}
	}
	assert.Assert(t, len(ids) > 50)
	return ids
}

type openAPI struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct{ Name, In string }
	}
}

// document is what is served: a test of broker/api compares it with this file.
func document(t *testing.T) (d openAPI) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "broker/api/testdata/openapi.golden.json"))
	assert.NilError(t, err)
	assert.NilError(t, json.Unmarshal(text, &d))
	return d
}

func TestEverySettingSaysWhoMayAbuseIt(t *testing.T) {
	var names []string
	blocks := config.Blocks()
	for _, block := range blocks {
		for _, inner := range block.Blocks {
			if !slices.ContainsFunc(blocks, func(b config.BlockSchema) bool { return b.Type == inner.Type }) {
				blocks = append(blocks, inner)
			}
		}
	}
	for _, block := range blocks {
		schemas := []sdk.Schema{block.Settings}
		for _, kind := range block.Kinds {
			schemas = append(schemas, kind.Settings)
		}
		for _, setting := range slices.Concat(schemas...) {
			names = append(names, strings.TrimPrefix(block.Type+"."+setting.Name, "."))
		}
	}
	for _, block := range config.Blocks() {
		for _, inner := range block.Blocks {
			if !slices.ContainsFunc(config.Blocks(), func(top config.BlockSchema) bool { return top.Type == inner.Type }) {
				names = append(names, settingsWithin(inner)...)
			}
		}
	}
	// The tables of these pages are generated from the schemas of the plugins.
	pages, err := filepath.Glob(filepath.Join(root, "docs/providers/*.md"))
	assert.NilError(t, err)
	assert.Assert(t, len(pages) >= 3)
	for _, page := range pages {
		settings := settingsOf(t, page)
		assert.Assert(t, len(settings) > 5, page)
		names = append(names, settings...)
	}
	have(t, abuse.Settings(), names)
}

// settingsWithin are those of a block that stands in another one alone.
func settingsWithin(block config.BlockSchema) (names []string) {
	for _, setting := range block.Settings {
		names = append(names, block.Type+"."+setting.Name)
	}
	for _, inner := range block.Blocks {
		names = append(names, settingsWithin(inner)...)
	}
	return names
}

var row = regexp.MustCompile("^\\| `([a-z0-9_]+)` \\|")

func settingsOf(t *testing.T, path string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	inTable := false
	for line := range strings.Lines(string(text)) {
		switch match := row.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "| setting | type |"):
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable && match != nil:
			names = append(names, strings.TrimSuffix(filepath.Base(path), ".md")+"."+match[1])
		}
	}
	return names
}

func TestEveryHeaderSaysWhoMayAbuseIt(t *testing.T) {
	names := headersRead(t)
	for _, operations := range document(t).Paths {
		for _, operation := range operations {
			for _, parameter := range operation.Parameters {
				if parameter.In == "header" {
					names[folded(parameter.Name)] = true
				}
			}
		}
	}
	assert.Assert(t, len(names) > 15, "%v", names)
	have(t, abuse.Headers(), slices.Collect(maps.Keys(names)))
}

func TestEveryLineIsWholeAndItsTestsAreThere(t *testing.T) {
	tests := testsOfTheRepository(t)
	for _, kind := range abuse.Kinds() {
		for _, l := range kind.Lines {
			assert.Check(t, len(l.Of) > 0 && len(l.Abuse) > 10 && len(l.Stops) > 9 && len(l.Tests) > 0, "%v", l)
			for _, test := range l.Tests {
				assert.Check(t, tests[test], "%s: %s shows it, which is no test", strings.Join(l.Of, " "), test)
			}
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)

func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range testFunction.FindAllSubmatch(text, -1) {
			tests[string(match[1])] = true
		}
		return err
	})
	assert.NilError(t, err)
	return tests
}

func TestThePageOfAbuseListsEverything(t *testing.T) {
	page, err := markdown.Read("../abuse.md")
	assert.NilError(t, err)
	text, err := page.WithGenerated("abuse", abuse.Page())
	assert.NilError(t, err)
	golden.Assert(t, text, "../../abuse.md")
}

func TestALineThatIsMissingIsSeen(t *testing.T) {
	seen := readsOf(t, `package p
const own = "X-Own"
func f(h http.Header, c *fiber.Ctx, header *fasthttp.RequestHeader) {
	for _, name := range []string{"A", "B"} { h.Get(name) }
	h.Values(own)
	c.Get(fiber.HeaderIfMatch)
	bytes.EqualFold(name, []byte(fiber.HeaderHost))
	p.In.Cookies()
	header.ContentType()
	query.Get("q")
}`)
	assert.Check(t, is.DeepEqual(slices.Sorted(maps.Keys(seen)), []string{"a", "b", "contenttype", "cookie", "host", "ifmatch", "xown"}))
}

func TestEveryArgumentOfAToolSaysWhoMayAbuseIt(t *testing.T) {
	// The answer of the front door on the wire, which a test there compares with this file.
	transcript, err := os.ReadFile(filepath.Join(root, "broker/frontdoor/mcp/testdata/list.golden"))
	assert.NilError(t, err)
	_, answer, found := strings.Cut(string(transcript), "\ndata: ")
	assert.Assert(t, found)
	var list struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema struct{ Properties map[string]any }
			}
		}
	}
	assert.NilError(t, json.Unmarshal([]byte(answer), &list))
	var names []string
	for _, tool := range list.Result.Tools {
		for argument := range tool.InputSchema.Properties {
			names = append(names, tool.Name+"."+argument)
		}
	}
	assert.Assert(t, len(names) > 30)
	have(t, abuse.Tools(), names)
}
