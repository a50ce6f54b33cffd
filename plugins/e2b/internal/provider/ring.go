package provider

// ring keeps the latest bytes of a stream.
type ring struct {
	keep  int64
	total int64 // all that ever came
	kept  []byte
}

func (r *ring) write(p []byte) {
	r.total += int64(len(p))
	r.kept = append(r.kept, p...)
	// Not for every byte: only when twice as much is there.
	if int64(len(r.kept)) > 2*r.keep {
		r.kept = append(r.kept[:0:0], r.kept[int64(len(r.kept))-r.keep:]...)
	}
}

// read copies what comes from an offset on, at most as much as fits; where it is not
// kept any more, from the first byte that is.
func (r *ring) read(offset int64, p []byte) (from int64, n int) {
	first := r.total - int64(len(r.kept))
	from = max(offset, first)
	if from >= r.total {
		return from, 0
	}
	return from, copy(p, r.kept[from-first:])
}
