// Package markdown reads the pages of docs/ for the tests that keep them true:
// links and headings, code blocks, and the sections that are generated from Go.
//
// It knows what our pages use of Markdown and no more. Only tests import it.
package markdown
