package site_test

import (
	"bytes"
	iofs "io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/docs/site"
)

const root = "../.."

// repository is a small one, with these files in place of or beside its own.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	all := map[string]string{
		"README.md":      "# All\n\n[index](docs/README.md)\n",
		"CHANGELOG.md":   "# Changes\n",
		"docs/README.md": "# Documentation\n\n| for | page |\n| --- | --- |\n| readers | [one](one.md) |\n",
		"docs/one.md":    "# One\n",
	}
	maps.Copy(all, files)
	dir := fs.NewDir(t, "repository", fs.WithDir("docs"), fs.WithDir("examples"))
	for name, text := range all {
		fs.Apply(t, dir, inside(strings.Split(name, "/"), text))
	}
	return dir.Path()
}

func inside(names []string, text string) fs.PathOp {
	if len(names) == 1 {
		return fs.WithFile(names[0], text)
	}
	return fs.WithDir(names[0], inside(names[1:], text))
}

func TestWhatIsMadeOfAPage(t *testing.T) {
	for name, c := range map[string]struct {
		files      map[string]string
		source     string
		page, want string
	}{
		"a link to a page and a heading": {
			map[string]string{"docs/one.md": "# One\n\n[it](two.md#a-b-c)\n", "docs/two.md": "# Two\n\n## A `b`, c!\n"},
			"",
			"docs/one.html", `<a href="two.html#a-b-c">it</a>`,
		},
		"a heading that is there twice": {
			map[string]string{"docs/one.md": "# One\n\n## Added\n\n## Added\n\n[it](#added-1)\n"},
			"",
			"docs/one.html", `<h2 id="added-1">Added</h2>`,
		},
		"a link to a file": {
			map[string]string{"docs/one.md": "# One\n\n[it](../sdk/a.go)\n", "sdk/a.go": "package a\n"},
			"",
			"docs/one.html", `<a href="../sdk/a.go.html">it</a>`,
		},
		"the file": {
			map[string]string{"docs/one.md": "# One\n\n[it](../sdk/a.go)\n", "sdk/a.go": "package a\n"},
			"",
			"sdk/a.go.html", `<span class="keyword">package</span>`,
		},
		"a link to a file that is shown elsewhere": {
			map[string]string{"docs/one.md": "# One\n\n[it](../sdk/a.go)\n", "sdk/a.go": "package a\n"},
			"https://example.com/blob/main/",
			"docs/one.html", `<a href="https://example.com/blob/main/sdk/a.go">it</a>`,
		},
		"a link to a directory": {
			map[string]string{"docs/one.md": "# One\n\n[it](../sdk)\n", "sdk/a.go": "package a\n", "sdk/b/b.go": "package b\n"},
			"",
			"sdk/index.html", "<li><a href=\"a.go.html\">a.go</a></li>\n<li>b/</li>",
		},
		"a link to a directory with a page": {
			map[string]string{"docs/one.md": "# One\n\n[it](../examples/a)\n", "examples/a/README.md": "# A\n"},
			"",
			"docs/one.html", `<a href="../examples/a/index.html">it</a>`,
		},
		"a picture": {
			map[string]string{"docs/one.md": "# One\n\n![it](a.svg)\n", "docs/a.svg": "<svg/>"},
			"",
			"docs/a.svg", "<svg/>",
		},
		"a table without a header": {
			map[string]string{"docs/one.md": "# One\n\n| | |\n| --- | --- |\n| `a` | b |\n"},
			"",
			"docs/one.html", "<table>\n<tbody>\n<tr><td><code>a</code></td><td>b</td></tr>\n</tbody>\n</table>",
		},
		"text that looks like HTML": {
			map[string]string{"docs/one.md": "# One\n\n1 < 2, `<script>alert(1)</script>`\n\n```text\n<b>\n```\n"},
			"",
			"docs/one.html", "<p>1 &lt; 2, <code>&lt;script&gt;alert(1)&lt;/script&gt;</code></p>\n<pre tabindex=\"0\"><code>&lt;b&gt;\n</code></pre>",
		},
		"a part that opens, and a comment": {
			map[string]string{"docs/one.md": "# One\n\n<!-- it is generated -->\n\n<details>\n<summary>More</summary>\n\n*so*\n\n</details>\n"},
			"",
			"docs/one.html", "<main id=\"site-content\" tabindex=\"-1\">\n<h1 id=\"one\">One</h1>\n<details>\n<summary>More</summary>\n<p><em>so</em></p>\n</details>\n</main>",
		},
		"the navigation": {
			nil, "",
			"docs/one.html", "<details open>\n<summary>Readers</summary>\n<ul>\n<li><a href=\"one.html\" aria-current=\"page\">One</a></li>",
		},
		"the navigation of the page on top": {
			nil, "",
			"index.html", `<li><a href="docs/one.html">One</a></li>`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := site.Build(repository(t, c.files), c.source)
			assert.NilError(t, err)
			text, ok := files[c.page]
			assert.Assert(t, ok, "the site has %v", slices.Sorted(maps.Keys(files)))
			assert.Check(t, is.Contains(string(text), c.want))
		})
	}
}

func TestWhatCannotBeMade(t *testing.T) {
	for name, c := range map[string]struct{ path, text, want string }{
		"a link to nothing":          {"docs/one.md", "# One\n\n[it](none.md)\n", "docs/one.md: the link none.md: "},
		"a link to no heading":       {"docs/one.md", "# One\n\n[it](README.md#none)\n", "docs/one.md: the link README.md#none: that page has no such heading"},
		"a link to none of its own":  {"docs/one.md", "# One\n\n[it](#none)\n", "docs/one.md: the link #none: the page has no such heading"},
		"a link out of the clone":    {"docs/one.md", "# One\n\n[it](../../../x.md)\n", "docs/one.md: the link ../../../x.md: "},
		"an absolute link":           {"docs/one.md", "# One\n\n[it](/docs/one.md)\n", "it must begin at the page"},
		"a link to another host":     {"docs/one.md", "# One\n\n[it](//example.com/a)\n", "it must begin at the page"},
		"a link that runs something": {"docs/one.md", "# One\n\n[it](javascript:alert(1))\n", "the scheme javascript is not for links"},
		"a heading of a source":      {"docs/one.md", "# One\n\n[it](one.md#one) [it](../LICENSE#L1)\n", "LICENSE"},
		"HTML of a page's own":       {"docs/one.md", "# One\n\n<script>alert(1)</script>\n", "only comments, <details> and <summary> can be here"},
		"HTML within a line":         {"docs/one.md", "# One\n\na <b onclick=x>b</b>\n", "only comments, <details> and <summary> can be here"},
		"a page without a title":     {"docs/one.md", "One\n", "docs/one.md has no heading"},
		"no navigation":              {"docs/README.md", "# Documentation\n", "docs/README.md has no table of pages"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := site.Build(repository(t, map[string]string{c.path: c.text}), "")
			assert.ErrorContains(t, err, c.want)
		})
	}
	t.Run("a source that is no beginning", func(t *testing.T) {
		_, err := site.Build(repository(t, nil), "https://example.com/blob/main")
		assert.ErrorContains(t, err, "must end with a slash")
	})
}

func TestWriteRemovesNothingButSites(t *testing.T) {
	files, err := site.Build(repository(t, nil), "")
	assert.NilError(t, err)
	dir := fs.NewDir(t, "site", fs.WithDir("of-somebody", fs.WithFile("letter", "dear")), fs.WithDir("empty"))
	assert.ErrorContains(t, site.Write(dir.Join("of-somebody"), files), "is not empty and holds no site")
	assert.Assert(t, fs.Equal(dir.Join("of-somebody"), fs.Expected(t, fs.MatchAnyFileMode, fs.WithFile("letter", "dear"))))
	for _, name := range []string{"new", "new", "empty"} {
		assert.NilError(t, site.Write(dir.Join(name), files))
	}
	files["more.html"] = []byte("more")
	assert.NilError(t, site.Write(dir.Join("new"), files))
	delete(files, "more.html")
	assert.NilError(t, site.Write(dir.Join("new"), files))
	written := map[string][]byte{}
	assert.NilError(t, filepath.WalkDir(dir.Join("new"), func(file string, entry iofs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir.Join("new"), file)
		assert.NilError(t, err)
		written[filepath.ToSlash(below)], err = os.ReadFile(file)
		return err
	}))
	assert.DeepEqual(t, written, files)
}

// built is the site of this repository, which tests share and do not change.
var built = sync.OnceValues(func() (map[string][]byte, error) { return site.Build(root, "") })

func whole(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := built()
	assert.NilError(t, err)
	return files
}

func TestTheSiteIsTheSameTwice(t *testing.T) {
	first := whole(t)
	second, err := site.Build(root, "")
	assert.NilError(t, err)
	assert.DeepEqual(t, slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second)))
	for name := range first {
		assert.Check(t, bytes.Equal(first[name], second[name]), "%s differs", name)
	}
}

// element is what of a page the checks look at.
type element struct {
	tag        string
	attributes map[string]string
}

// elements are those of a page. Scripts and styles shall have no text.
func elements(t *testing.T, text []byte) (all []element) {
	t.Helper()
	document, err := html.Parse(bytes.NewReader(text))
	assert.NilError(t, err)
	for n := range document.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		e := element{n.Data, map[string]string{}}
		for _, a := range n.Attr {
			e.attributes[a.Key] = a.Val
		}
		if (n.Data == "script" || n.Data == "style") && n.FirstChild != nil {
			t.Errorf("<%s> has a text, which the policy forbids: %s", n.Data, n.FirstChild.Data)
		}
		all = append(all, e)
	}
	return all
}

func TestEveryLinkOfTheSiteLeadsSomewhereAndNothingComesFromElsewhere(t *testing.T) {
	files := whole(t)
	pages, anchors := map[string][]element{}, map[string]map[string]bool{}
	for name, text := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		pages[name], anchors[name] = elements(t, text), map[string]bool{}
		for _, e := range pages[name] {
			id, ok := e.attributes["id"]
			assert.Check(t, !ok || !anchors[name][id], "%s has the id %q twice", name, id)
			anchors[name][id] = true
		}
	}
	paths, err := markdown.Pages(root)
	assert.NilError(t, err)
	assert.Assert(t, len(pages) >= len(paths), "%d files for %d pages", len(pages), len(paths))
	links := 0
	for name, all := range pages {
		policy := false
		for _, e := range all {
			policy = policy || e.attributes["http-equiv"] == "Content-Security-Policy" && strings.HasPrefix(e.attributes["content"], "default-src 'none'; ")
			for attribute, value := range e.attributes {
				assert.Check(t, attribute != "style" && !strings.HasPrefix(attribute, "on"), "%s: <%s> has %s, which the policy forbids", name, e.tag, attribute)
				if attribute != "href" && attribute != "src" {
					continue
				}
				links++
				target, err := url.Parse(value)
				assert.NilError(t, err)
				if target.Scheme != "" || target.Host != "" {
					assert.Check(t, e.tag == "a" && target.Scheme != "", "%s: <%s> loads %s", name, e.tag, value)
					continue
				}
				to := name
				if target.Path != "" {
					to = path.Join(path.Dir(name), target.Path)
				}
				_, ok := files[to]
				assert.Check(t, ok, "%s: %s leads to no file", name, value)
				assert.Check(t, target.Fragment == "" || anchors[to][target.Fragment], "%s: %s leads to no heading", name, value)
			}
		}
		assert.Check(t, policy, "%s has no policy", name)
	}
	assert.Check(t, links > 5000, "only %d links were looked at", links)
	for _, file := range paths {
		below, err := filepath.Rel(root, file)
		assert.NilError(t, err)
		want := strings.Replace(strings.TrimSuffix(filepath.ToSlash(below), ".md")+".html", "README.html", "index.html", 1)
		assert.Check(t, pages[want] != nil, "%s has no page", below)
	}
}
