package boltfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// DamageError says what is wrong with a file, for people.
type DamageError struct{ reason error }

func (e *DamageError) Error() string { return e.reason.Error() }

// Unwrap returns the cause, such as a failure to read.
func (e *DamageError) Unwrap() error { return e.reason }

func damaged(format string, args ...any) error {
	return &DamageError{fmt.Errorf(format, args...)}
}

// Visit is called for each record of the buckets at the top, in the order of keys. Key
// and value may be kept.
type Visit func(bucket string, key, value []byte) error

// VisitBucket is called for each bucket at the top before its records.
type VisitBucket func(bucket string, sequence uint64)

// maxDepth bounds a tree and the buckets in each other; a tree of four levels holds
// more than any file of a broker.
const maxDepth = 32

// pageState is what is known of a page so far.
type pageState byte

const (
	unseen pageState = iota
	free
	used
)

// reader walks a file.
type reader struct {
	file  io.ReaderAt
	meta  Meta
	pages []pageState

	visit       Visit
	visitBucket VisitBucket
	// lost, if not nil, is told of each page that cannot be read, and the walk goes on.
	lost func(error)
}

// Check reports the first thing in a file of that size that bbolt must not be shown, as
// a *DamageError, and calls visit, which may be nil, for its records. Other errors are
// those of visit.
func Check(file io.ReaderAt, size int64, visit Visit) (Meta, error) {
	r, err := newReader(file, size)
	if err != nil {
		return Meta{}, err
	}
	r.visit = visit
	if err := r.freelist(); err != nil {
		return r.meta, err
	}
	if err := r.tree(r.meta.Root, nil, nil, 0, nil); err != nil {
		return r.meta, err
	}
	for id, state := range r.pages {
		if state == unseen {
			return r.meta, damaged("page %d is neither in use nor free", id)
		}
	}
	return r.meta, nil
}

// Salvage calls visit for each record that can still be read and lost for each piece
// that cannot. The error is that of visit, or says that nothing can be read at all.
func Salvage(file io.ReaderAt, size int64, bucket VisitBucket, visit Visit, lost func(error)) error {
	meta, err := ReadMeta(file, size)
	if err != nil {
		return err
	}
	if meta.High < 3 || int64(meta.High) > maxSalvaged/meta.PageSize {
		return damaged("it says that it has %d pages", meta.High)
	}
	if meta.Need() > size {
		lost(damaged("it was cut: it has %d bytes of %d", size, meta.Need()))
	}
	r := &reader{file: file, meta: meta, pages: make([]pageState, meta.High), visit: visit, visitBucket: bucket, lost: lost}
	r.pages[0], r.pages[1] = used, used
	return r.tree(meta.Root, nil, nil, 0, nil)
}

// maxSalvaged bounds how long a file may say that it was, in bytes.
const maxSalvaged = 1 << 40

func newReader(file io.ReaderAt, size int64) (*reader, error) {
	meta, err := ReadMeta(file, size)
	if err != nil {
		return nil, err
	}
	pages := uint64(size / meta.PageSize)
	if meta.High > pages {
		return nil, damaged("it was cut: it has %d bytes, and %d pages of %d belong to it", size, meta.High, meta.PageSize)
	}
	if meta.High < 3 {
		return nil, damaged("it says that it has %d pages", meta.High)
	}
	r := &reader{file: file, meta: meta, pages: make([]pageState, meta.High)}
	r.pages[0], r.pages[1] = used, used
	return r, nil
}

// page is one with those that it overflows into.
type page struct {
	id    uint64
	flags uint16
	count int
	data  []byte // with its header
}

// take reads a page and marks it as used.
func (r *reader) take(id uint64) (p page, err error) {
	if id < 2 || id >= r.meta.High {
		return p, damaged("something points at page %d, which there is not", id)
	}
	if r.pages[id] != unseen {
		return p, damaged("page %d is in use twice, or free and in use", id)
	}
	var header [headerSize]byte
	at := int64(id) * r.meta.PageSize
	if _, err := r.file.ReadAt(header[:], at); err != nil {
		return p, damaged("page %d cannot be read: %w", id, err)
	}
	p.id = id
	p.flags = binary.LittleEndian.Uint16(header[8:])
	p.count = int(binary.LittleEndian.Uint16(header[10:]))
	overflow := uint64(binary.LittleEndian.Uint32(header[12:]))
	if own := binary.LittleEndian.Uint64(header[:]); own != id {
		return p, damaged("page %d says that it is page %d", id, own)
	}
	if overflow >= r.meta.High-id {
		return p, damaged("page %d is longer than the file", id)
	}
	for i := id + 1; i <= id+overflow; i++ {
		if r.pages[i] != unseen {
			return p, damaged("page %d is in use twice, or free and in use", i)
		}
	}
	section := io.NewSectionReader(r.file, at, int64(overflow+1)*r.meta.PageSize)
	// Not more memory than the file has bytes, whatever the page says.
	var data bytes.Buffer
	if n, err := data.ReadFrom(section); err != nil || n != section.Size() {
		return p, damaged("page %d cannot be read as a whole (%d bytes of %d): %w", id, n, section.Size(), orCut(err))
	}
	p.data = data.Bytes()
	for i := id; i <= id+overflow; i++ {
		r.pages[i] = used
	}
	return p, nil
}

func orCut(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// freelist marks the pages that are free.
func (r *reader) freelist() error {
	p, err := r.take(r.meta.Freelist)
	if err != nil {
		return err
	}
	if p.flags != flagFreelist {
		return damaged("page %d is not the list of free pages", p.id)
	}
	ids := p.data[headerSize:]
	count := uint64(p.count)
	if count == 0xFFFF { // the real one follows
		count, ids = binary.LittleEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return damaged("the list of free pages has %d entries, more than there is room for", count)
	}
	for i := range count {
		id := binary.LittleEndian.Uint64(ids[8*i:])
		if id < 2 || id >= r.meta.High || r.pages[id] != unseen {
			return damaged("the list of free pages has page %d", id)
		}
		r.pages[id] = free
	}
	return nil
}
