// Package chromium drives pages of headless Chromium in tests: it waits for what a page shows,
// keeps what the browser complains of, and checks that everybody can use the page. What is on a
// page, and what somebody does there, is the business of each test.
package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
)

// Late is long enough for whatever a page shows next.
const Late = 2 * time.Minute

// Page is a page of a browser of its own.
type Page struct {
	t   *testing.T
	ctx context.Context

	mu   sync.Mutex
	said []chromedp.ConsoleMessage
}

// Start starts Chromium until the test ends.
func Start(t *testing.T) *Page {
	t.Helper()
	binaries.Needs(t, "chromium", "chromium")
	allocated, cancel := chromedp.NewExecAllocator(t.Context(),
		chromedp.ExecPath("chromium"), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("disable-background-networking", true),
	)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	p := &Page{t: t, ctx: ctx}
	assert.NilError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"))) // the browser ends with the first context
	messages := chromedp.Console(ctx)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		for message, err := range messages {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.said = append(p.said, message)
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-listening })
	return p
}

// Do takes steps in the page.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Late)
	defer cancel()
	assert.NilError(p.t, chromedp.Do(ctx, steps...))
}

// Open goes to an address.
func (p *Page) Open(address string) {
	p.t.Helper()
	p.Do(chromedp.Navigate(address))
}

// Evaluate returns what an expression in the page comes to. It waits for a promise.
func Evaluate[T any](p *Page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Late)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	assert.NilError(p.t, err, "%.300s", expression)
	return value
}

// Until waits for an expression to be true. The text says what is wrong as long as it is not.
func (p *Page) Until(expression, format string, args ...any) {
	p.t.Helper()
	poll.WaitOn(p.t, func(poll.LogT) poll.Result {
		if !Evaluate[bool](p, expression) {
			return poll.Continue("%s; the page is: %.3000s", fmt.Sprintf(format, args...), Evaluate[string](p, "document.body.innerText"))
		}
		return poll.Success()
	}, poll.WithTimeout(Late), poll.WithDelay(50*time.Millisecond))
}

// Sees waits for a text that can be seen.
func (p *Page) Sees(text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("document.body.innerText.includes(%s)", Quoted(text)), "there is no %q", text)
}

// Quoted is a text as a script has it.
func Quoted(text string) string {
	encoded, _ := json.Marshal(text) // a string has a JSON form
	return strings.ReplaceAll(string(encoded), "<", `\u003c`)
}

// Screen has the page in a size, in pixels, and in light or dark colours.
func (p *Page) Screen(width, height int64, scheme string) {
	p.t.Helper()
	p.Do(chromedp.EmulateViewport(width, height), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// Picture returns what is on the screen, as WebP.
func (p *Page) Picture() []byte {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Late)
	defer cancel()
	quality := int64(80)
	picture, err := chromedp.Call(ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{Format: "webp", Quality: &quality})
	assert.NilError(p.t, err)
	return picture.Data
}

// Complaints are what the browser says of the page: scripts that failed and rules that were
// broken, but not that a request was refused, nor what it recommends.
func (p *Page) Complaints() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.said {
		if m.Source != "network" && m.Type != chromedp.ConsoleDebug {
			all = append(all, fmt.Sprintf("%s %s %s %s", m.Type, m.Source, m.Text, m.URL))
		}
	}
	return all
}

// Checker is axe-core, which checks the rules of WCAG, in the version that the admin page's
// lock file names. npm installs it; root is the root of the repository.
func Checker(t *testing.T, root string) string {
	t.Helper()
	binaries.Needs(t, "npm", "npm")
	modules, err := npm.Fetch(t.Context(), filepath.Join(root, "broker", "console", "web"))
	assert.NilError(t, err)
	script, err := os.ReadFile(filepath.Join(modules, "axe-core", "axe.min.js"))
	assert.NilError(t, err)
	return string(script)
}

// Accessible has a Checker look at the page as it is, and reports to t what is against the
// rules, and if the page is wider than its screen.
func (p *Page) Accessible(t *testing.T, checker, name string) {
	t.Helper()
	var violations []struct {
		ID    string
		Nodes []struct{ HTML, FailureSummary string }
	}
	if !Evaluate[bool](p, "!!window.axe") {
		Evaluate[bool](p, checker+";true")
	}
	text := Evaluate[string](p, `axe.run({preload: false}).then(r => JSON.stringify(r.violations))`)
	assert.NilError(t, json.Unmarshal([]byte(text), &violations))
	for _, v := range violations {
		t.Errorf("%s: %s: %d times, as in %s\n%s", name, v.ID, len(v.Nodes), v.Nodes[0].HTML, v.Nodes[0].FailureSummary)
	}
	wide := Evaluate[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth")
	assert.Check(t, wide <= 0, "%s is %d pixels wider than the screen", name, wide)
}
