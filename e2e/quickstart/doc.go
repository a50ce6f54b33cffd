// Package quickstart does what the pages of docs/quick-start say, block by block: their
// commands in a shell, their configuration in a file beside those of the other pages, their
// programs with the clients that they name. One broker with sandboxes of gVisor serves all
// pages. What the pages link to is tested elsewhere.
package quickstart
