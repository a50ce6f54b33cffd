package v1

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds on what a compressed archive may become. What it becomes takes the broker's
// time and the instance's disk, and neither has been sent: source code shrinks to a
// tenth, zeros to a thousandth.
const (
	maxExpanded      = 8 << 30
	maxExpansion     = 200      // times what was sent,
	expandedUnlooked = 64 << 20 // beyond these first bytes
)

// fieldContent is what errors about a body that streams name.
const fieldContent = "content"

// archiveContent returns the tar stream of a body that is one, or one in gzip. A tar
// stream cannot begin as gzip does: that would be a name with control characters.
func archiveContent(body io.Reader) io.Reader { return &archiveReader{body: body} }

// archiveReader looks at the beginning when it is read first.
type archiveReader struct {
	body    io.Reader
	content io.Reader // nil before that
}

// Read implements io.Reader.
func (a *archiveReader) Read(p []byte) (int, error) {
	if a.content == nil {
		sent := &counted{Reader: a.body}
		head := bufio.NewReader(sent)
		magic, err := head.Peek(3)
		switch {
		case len(magic) == 3 && string(magic) == "\x1f\x8b\x08":
			a.content = &expanded{sent: sent, head: head}
		case err != nil && !errors.Is(err, io.EOF):
			return 0, err
		default:
			a.content = head
		}
	}
	return a.content.Read(p)
}

// counted counts what was read.
type counted struct {
	io.Reader
	n   int64
	err error // other than io.EOF
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// expanded is what a gzip stream holds, up to the bounds.
type expanded struct {
	sent  *counted
	head  *bufio.Reader
	plain *gzip.Reader
	n     int64
}

// Read implements io.Reader.
func (e *expanded) Read(p []byte) (int, error) {
	if e.plain == nil {
		var err error
		if e.plain, err = gzip.NewReader(e.head); err != nil {
			return 0, e.explain(err)
		}
	}
	n, err := e.plain.Read(p)
	e.n += int64(n)
	switch {
	case e.n > maxExpanded:
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "expands to more than %d GiB; send it in parts", maxExpanded>>30)
	case e.n > expandedUnlooked && e.n/maxExpansion > e.sent.n:
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "expands to more than %d times its size; send it without compression", maxExpansion)
	}
	return n, e.explain(err)
}

// explain tells a body that broke off from one that is no gzip.
func (e *expanded) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case e.sent.err != nil:
		return e.sent.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is a gzip stream that is cut off")
	default:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%w", fmt.Errorf("is a broken gzip stream: %w", err))
	}
}
