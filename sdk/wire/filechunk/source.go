package filechunk

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/mem"
)

// Size is how many bytes of a file a message carries at most, where there are so
// many: just below 1 MiB, in which there is room for what is around them.
const Size = 1<<20 - 128

// Source is a reader that has its bytes in buffers which can be passed on.
type Source interface {
	io.Reader
	// NextChunk returns what comes next, never nothing: the caller frees it. Its
	// error is as Read's.
	NextChunk() (mem.BufferSlice, error)
}

// Next returns what comes next from a reader, at most Size bytes where it is no
// Source: a whole chunk if whole, else what one call of Read gives. A chunk and an
// error never come together; after an error other than io.EOF, what was read
// before it is lost.
func Next(from io.Reader, whole bool) (mem.BufferSlice, error) {
	if source, ok := from.(Source); ok {
		return source.NextChunk()
	}
	handle := buffers.Get(Size)
	buf := *handle
	n := 0
	var err error
	for err == nil && (n == 0 || whole && n < len(buf)) {
		var more int
		more, err = from.Read(buf[n:])
		n += more
	}
	if n == 0 || err != nil && !errors.Is(err, io.EOF) {
		buffers.Put(handle)
		return nil, err
	}
	*handle = buf[:n]
	return mem.BufferSlice{mem.NewBuffer(handle, buffers)}, nil
}

// buffers has those that nobody reads any more. gRPC's own pool would clear them
// each time.
var buffers = &bufferPool{}

type bufferPool struct{ pool sync.Pool }

var _ mem.BufferPool = (*bufferPool)(nil)

// Get implements mem.BufferPool, for Size bytes.
func (b *bufferPool) Get(int) *[]byte {
	if handle, ok := b.pool.Get().(*[]byte); ok {
		return handle
	}
	buf := make([]byte, Size)
	return &buf
}

// Put implements mem.BufferPool.
func (b *bufferPool) Put(handle *[]byte) {
	*handle = (*handle)[:Size]
	b.pool.Put(handle)
}
