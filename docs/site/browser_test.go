package site_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/docs/site"
	"github.com/sandbox-broker/sandbox-broker/e2e/chromium"
)

// reader is a browser with the site's files on a disk and no server.
type reader struct {
	*chromium.Page
	dir string
}

// startReader writes the site and starts Chromium until the test ends. The test fails if the
// browser complained of a page: of a script that failed, or of what the policy forbids.
func startReader(t *testing.T) reader {
	t.Helper()
	r := reader{chromium.Start(t), filepath.Join(t.TempDir(), "site")}
	t.Cleanup(func() { assert.DeepEqual(t, r.Complaints(), []string(nil)) })
	assert.NilError(t, site.Write(r.dir, whole(t)))
	return r
}

// opens opens a page of the site as a file.
func (r reader) opens(page string) { r.Open("file://" + filepath.Join(r.dir, page)) }

func (r reader) until(expression string) { r.Until(expression, "%s is not so", expression) }

// looksFor types into the search, as somebody does who has just opened the page.
func (r reader) looksFor(question string) {
	r.Do(chromedp.KeyEvent("/"))
	r.until("document.activeElement.id === 'site-question'")
	chromium.Evaluate[bool](r.Page, "document.activeElement.select() === undefined")
	r.Do(chromedp.KeyEvent(question))
}

const answers = "[...document.querySelectorAll('#site-answers li a')]"

func TestTheSearchFindsWithoutAServer(t *testing.T) {
	r := startReader(t)
	for question, want := range map[string]string{
		"max_lifetime":           "How long it lives",
		"lifet":                  "How long it lives", // the beginning of a word, or of a part of one
		"ragflow":                "RAGFlow",
		"SB011":                  "Errors",
		"plugin verify":          "Commands for plugins",
		"Opensandbox  TERMINALS": "OpenSandbox: Terminals",
	} {
		t.Run(question, func(t *testing.T) {
			r.opens("docs/agents-files.html")
			r.looksFor(question)
			r.until(fmt.Sprintf("%s.some(a => a.textContent.includes(%q))", answers, want))
		})
	}
	t.Run("what is found is gone to with the keys", func(t *testing.T) {
		r.opens("docs/agents-files.html")
		r.looksFor("pool_size")
		r.until(answers + ".length > 0")
		to := chromium.Evaluate[string](r.Page, answers+"[0].href")
		r.Do(chromedp.KeyEvent("\r"))
		r.until("document.activeElement === " + answers + "[0]")
		r.Do(chromedp.KeyEvent("\r"))
		r.until(fmt.Sprintf("location.href === %q && document.readyState === 'complete' && !!document.querySelector('h1')", to))
	})
	t.Run("nothing is found", func(t *testing.T) {
		r.opens("index.html")
		r.looksFor("xyzzyx")
		r.until("document.body.innerText.includes('Nothing has xyzzyx.')")
		assert.Equal(t, chromium.Evaluate[int](r.Page, answers+".length"), 0)
	})
	t.Run("what is typed is text", func(t *testing.T) {
		r.opens("index.html")
		r.looksFor("<img src=x onerror=taken=1>")
		r.until("!document.querySelector('#site-answers').hidden")
		assert.Check(t, chromium.Evaluate[bool](r.Page, "window.taken === undefined && !document.querySelector('img[src=x]')"))
	})
}

// Everybody can read it: by keys, with a screen reader, on a small screen, in the dark.
func TestEverybodyCanReadTheSite(t *testing.T) {
	r, checker := startReader(t), chromium.Checker(t, root)
	kinds := []string{"index.html", "docs/index.html", "docs/agents.html", "docs/configuration.html", "sdk/provider.go.html"}
	for _, screen := range []struct {
		width  int64
		scheme string
		pages  []string
	}{
		{1280, "light", append([]string{
			"docs/architecture.html", "docs/security.html", "docs/performance.html", "docs/admin.html", "CHANGELOG.html", "LICENSE.html", "sdk/providertest/index.html",
		}, kinds...)},
		// One of each kind: what differs is how they are laid out.
		{800, "light", kinds},
		{360, "dark", kinds},
	} {
		if testing.Short() {
			screen.pages = screen.pages[len(screen.pages)-2:]
		}
		for _, page := range screen.pages {
			t.Run(fmt.Sprintf("%s at %d, %s", page, screen.width, screen.scheme), func(t *testing.T) {
				r.Screen(screen.width, 780, screen.scheme)
				r.opens(page)
				if page == "docs/index.html" {
					r.looksFor("tenant")
					r.until(answers + ".length > 0")
				}
				r.Accessible(t, checker, page)
			})
		}
	}
}
