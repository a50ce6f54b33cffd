// Package ring keeps the latest of what a program prints, by the offsets of its bytes:
// what package localcommands and the guest of the self-managed provider have in common.
package ring

// firstBuffer is what a ring takes for its first byte.
const firstBuffer = 4 << 10

// Buffer keeps the last bytes of a stream. The byte with offset o is at o modulo
// the length of buf, which grows as it is needed. It is not safe for concurrent use.
type Buffer struct {
	keep  int // bytes at most
	buf   []byte
	total int64 // bytes ever
	first int64 // offset of the oldest byte that is kept
}

// New returns a buffer for at most keep bytes.
func New(keep int) Buffer { return Buffer{keep: keep} }

// Total is how many bytes were ever written.
func (b *Buffer) Total() int64 { return b.total }

// Held is how many bytes of memory the buffer takes.
func (b *Buffer) Held() int { return len(b.buf) }

// Write adds bytes, of which the oldest make room.
func (b *Buffer) Write(p []byte) {
	b.grow(int(b.total-b.first) + len(p))
	b.total += int64(len(p))
	b.first = max(b.first, b.total-int64(len(b.buf)))
	if len(p) > len(b.buf) {
		p = p[len(p)-len(b.buf):]
	}
	b.put(b.total-int64(len(p)), p)
}

// grow makes room for n bytes, or as many as are to be kept.
func (b *Buffer) grow(n int) {
	size := max(len(b.buf), min(firstBuffer, b.keep))
	for size < n && size < b.keep {
		size = min(2*size, b.keep)
	}
	if size == len(b.buf) {
		return
	}
	_, held := b.Read(b.first, b.total-b.first)
	b.buf = make([]byte, size)
	b.put(b.first, held)
}

// put copies bytes to the place of an offset. They fit.
func (b *Buffer) put(offset int64, p []byte) {
	if len(p) == 0 {
		return
	}
	at := int(offset % int64(len(b.buf)))
	n := copy(b.buf[at:], p)
	copy(b.buf, p[n:])
}

// Read returns a copy of at most n bytes from an offset on, or from the oldest
// byte that is kept, and the offset of the first.
func (b *Buffer) Read(offset, n int64) (int64, []byte) {
	offset = max(offset, b.first)
	n = min(n, b.total-offset)
	if n <= 0 {
		return offset, nil
	}
	p := make([]byte, n)
	at := int(offset % int64(len(b.buf)))
	copied := copy(p, b.buf[at:])
	copy(p[copied:], b.buf)
	return offset, p
}

// Forget drops what is kept.
func (b *Buffer) Forget() { b.buf, b.first = nil, b.total }
