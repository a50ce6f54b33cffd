package commands

// firstBuffer is what a ring takes for its first byte.
const firstBuffer = 4 << 10

// ring keeps the last bytes of a stream. The byte with offset o is at o modulo
// the length of the buffer.
type ring struct {
	keep  int // bytes at most
	buf   []byte
	total int64 // bytes ever
	first int64 // offset of the oldest byte that is kept
}

// write adds bytes, of which the oldest make room.
func (r *ring) write(p []byte) {
	r.grow(int(r.total-r.first) + len(p))
	r.total += int64(len(p))
	r.first = max(r.first, r.total-int64(len(r.buf)))
	if len(p) > len(r.buf) {
		p = p[len(p)-len(r.buf):]
	}
	r.put(r.total-int64(len(p)), p)
}

// grow makes room for n bytes, or as many as are to be kept.
func (r *ring) grow(n int) {
	size := max(len(r.buf), min(firstBuffer, r.keep))
	for size < n && size < r.keep {
		size = min(2*size, r.keep)
	}
	if size == len(r.buf) {
		return
	}
	_, held := r.read(r.first, r.total-r.first)
	r.buf = make([]byte, size)
	r.put(r.first, held)
}

// put copies bytes to the place of an offset. They fit.
func (r *ring) put(offset int64, p []byte) {
	if len(p) == 0 {
		return
	}
	at := int(offset % int64(len(r.buf)))
	n := copy(r.buf[at:], p)
	copy(r.buf, p[n:])
}

// read returns a copy of at most n bytes from an offset on, or from the oldest
// byte that is kept, and the offset of the first.
func (r *ring) read(offset, n int64) (int64, []byte) {
	offset = max(offset, r.first)
	n = min(n, r.total-offset)
	if n <= 0 {
		return offset, nil
	}
	p := make([]byte, n)
	at := int(offset % int64(len(r.buf)))
	copied := copy(p, r.buf[at:])
	copy(p[copied:], r.buf)
	return offset, p
}

// forget drops what is kept.
func (r *ring) forget() { r.buf, r.first = nil, r.total }
