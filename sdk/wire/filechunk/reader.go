package filechunk

import "google.golang.org/grpc/mem"

// Reader reads the data of messages that it receives. It ends with the error that
// receive ends with: io.EOF only where the sender ended the stream in order.
type Reader struct {
	receive func() (mem.BufferSlice, error)
	rest    mem.BufferSlice
	offset  int // in the first of rest
	err     error
}

var _ Source = (*Reader)(nil)

// NewReader returns a reader of what receive returns.
func NewReader(receive func() (mem.BufferSlice, error)) *Reader { return &Reader{receive: receive} }

// Wait returns when there is something to read, or nothing more.
func (r *Reader) Wait() error {
	for len(r.rest) == 0 {
		if r.err != nil {
			return r.err
		}
		r.rest, r.err = r.receive()
	}
	return nil
}

// Read implements io.Reader. It reads no further than to the end of a message.
func (r *Reader) Read(p []byte) (n int, err error) {
	if err := r.Wait(); err != nil {
		return 0, err
	}
	for n < len(p) && len(r.rest) > 0 {
		copied := copy(p[n:], r.rest[0].ReadOnlyData()[r.offset:])
		n += copied
		if r.offset += copied; r.offset == r.rest[0].Len() {
			r.rest[0].Free()
			r.rest, r.offset = r.rest[1:], 0
		}
	}
	return n, nil
}

// NextChunk implements Source.
func (r *Reader) NextChunk() (mem.BufferSlice, error) {
	if err := r.Wait(); err != nil {
		return nil, err
	}
	chunk := r.rest
	if r.offset > 0 {
		first := chunk[0]
		chunk[0] = first.Slice(r.offset, first.Len())
		first.Free()
	}
	r.rest, r.offset = nil, 0
	return chunk, nil
}
