// Package tutorial walks through docs/writing-a-provider.md as a new author does:
// from a clean clone, in a directory of its own, command by command. What the page
// says of the code itself is checked in package docs.
package tutorial
