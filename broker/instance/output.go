package instance

import (
	"bytes"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// collector keeps the output of one execution, up to a limit for each stream.
type collector struct {
	mu             sync.Mutex
	limit          int64
	stdout, stderr bytes.Buffer
	artifacts      []sdk.Artifact
	truncated      bool
	closed         bool
}

var _ sdk.Output = (*collector)(nil)

func newCollector(limit int64) *collector { return &collector{limit: limit} }

func (c *collector) Stdout(p []byte) error { return c.write(&c.stdout, p) }
func (c *collector) Stderr(p []byte) error { return c.write(&c.stderr, p) }

func (c *collector) write(to *bytes.Buffer, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errShuttingDown
	}
	if room := c.limit - int64(to.Len()); int64(len(p)) > room {
		p = p[:room]
		c.truncated = true
	}
	to.Write(p)
	return nil
}

// Artifact keeps an artifact; there are no more than were asked for.
func (c *collector) Artifact(a sdk.Artifact) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errShuttingDown
	}
	c.artifacts = append(c.artifacts, a)
	return nil
}

// close ends the collection: what a provider sends after its answer is refused.
func (c *collector) close() (stdout, stderr []byte, artifacts []sdk.Artifact) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.stdout.Bytes(), c.stderr.Bytes(), c.artifacts
}
