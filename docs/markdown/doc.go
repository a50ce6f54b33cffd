// Package markdown reads the pages of docs/ for the tests that keep them true:
// links and headings, code blocks, and the sections that are generated from Go. It
// writes those sections too, and whole pages about providers for `sandbox-broker
// plugin docs`.
//
// It knows what our pages use of Markdown and no more.
package markdown
