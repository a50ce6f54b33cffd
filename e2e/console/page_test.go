package console_test

import (
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/chromium"
)

// picturesFlag is the directory that pictures of the page are written to, for the docs.
var picturesFlag = flag.String("pictures", "", "a directory for pictures of the page")

// page is the admin page in a browser.
type page struct {
	*chromium.Page
	t *testing.T
}

func startPage(t *testing.T) page {
	t.Helper()
	return page{chromium.Start(t), t}
}

// named finds, in the dialog that is on top if there is one, what can be clicked by the name
// that assistive technology tells, or by its text.
const named = `(name => {
	const within = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document
	return [...within.querySelectorAll('button, a, summary')].find(e => (e.getAttribute('aria-label') ?? e.textContent.trim()) === name && !e.disabled && e.checkVisibility())
})`

// labelled finds a field by the beginning of its label.
const labelled = `(label => {
	const within = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document
	const found = [...within.querySelectorAll('label')].find(l => l.textContent.trim().startsWith(label) && l.checkVisibility())
	return found && document.getElementById(found.htmlFor)
})`

func (p page) click(name string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("!!%s(%s)", named, chromium.Quoted(name)), "there is no %q to click", name)
	chromium.Evaluate[bool](p.Page, fmt.Sprintf("(e => { e.scrollIntoView({block: 'center'}); e.click(); return true })(%s(%s))", named, chromium.Quoted(name)))
}

// fill types into a field in place of what is there.
func (p page) fill(label, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("!!%s(%s)", labelled, chromium.Quoted(label)), "there is no field %q", label)
	chromium.Evaluate[bool](p.Page, fmt.Sprintf("(e => { e.scrollIntoView({block: 'center'}); e.focus(); e.select(); return true })(%s(%s))", labelled, chromium.Quoted(label)))
	p.Do(chromedp.KeyEvent(text))
}

// signIn opens the page and signs in.
func (p page) signIn(url, token string) {
	p.t.Helper()
	p.Open(url + "/admin")
	p.fill("Token of an administrator", token)
	p.click("Sign in")
	p.Sees("Sign out")
}

// view goes to a view by its link.
func (p page) view(name string) {
	p.t.Helper()
	p.click(name)
	p.Until(fmt.Sprintf("document.querySelector('h1')?.textContent === %s", chromium.Quoted(name)), "the view %q is not shown", name)
}

// picture takes one for the docs: as text, which is what the repository holds.
func (p page) picture(name string) {
	p.t.Helper()
	if *picturesFlag == "" {
		return
	}
	const form = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d"><image width="%[1]d" height="%[2]d" href="data:image/webp;base64,%[3]s"/></svg>`
	size := chromium.Evaluate[[]int](p.Page, "[innerWidth, innerHeight]")
	text := fmt.Sprintf(form+"\n", size[0], size[1], base64.StdEncoding.EncodeToString(p.Picture()))
	assert.NilError(p.t, os.WriteFile(filepath.Join(*picturesFlag, name+".svg"), []byte(text), 0o644))
}

// inReach is all that somebody finds who looks into the page's memory of documents: the
// document with its fields, what is stored, and the addresses.
func (p page) inReach() string {
	p.t.Helper()
	return chromium.Evaluate[string](p.Page, `JSON.stringify([
		document.documentElement.outerHTML, [...document.querySelectorAll('input, textarea')].map(e => e.value),
		{...localStorage}, {...sessionStorage}, document.cookie, location.href, document.title, history.state,
		performance.getEntries().map(e => e.name),
	])`)
}
