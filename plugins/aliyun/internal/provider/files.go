package provider

import (
	"context"
	"errors"
	"io"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// maxListed bounds what a list looks at.
	maxListed = 10_000
	// readAtOnce is how much of a file comes with its description, in bytes.
	readAtOnce = 256 << 10
)

// store is a guestfiles.Store.
type store struct {
	place.Store
	p *Provider
}

// Open implements guestfiles.Store. A download is from the beginning of a file on, for the
// service knows no other.
func (s store) Open(ctx context.Context, instanceID, name string, offset, length int64) (io.ReadCloser, error) {
	box, err := s.p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	content, err := again(ctx, func(context.Context) (io.ReadCloser, error) {
		return s.p.data.Download(ctx, instanceID, box.Real(name))
	})
	if err != nil {
		return nil, s.p.explain(ctx, err, sdk.CodeUnavailable, "read a file")
	}
	if _, err := io.CopyN(io.Discard, content, offset); err != nil {
		return nil, s.p.explain(ctx, errors.Join(err, content.Close()), sdk.CodeUnavailable, "read a file")
	}
	return &part{io.LimitReader(content, length), content}, nil
}

// part is a part of a download.
type part struct {
	io.Reader
	io.Closer
}
