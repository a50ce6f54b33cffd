package boltfile

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// The form of the file, which is bbolt's version 2: pages of one size, of which the first
// two are the meta pages. Numbers are those of the machine, little end first wherever
// the broker runs.
const (
	headerSize   = 16 // of each page: its number, flags, count, overflow
	elementSize  = 16 // of a branch and of a leaf alike
	metaSize     = 64
	bucketSize   = 16 // the root page of a bucket and its sequence
	magic        = 0xED0CDAED
	version      = 2
	minPageSize  = 1 << 10
	maxPageSize  = 64 << 10
	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10
	// inBucket marks an element of a leaf whose value is a bucket.
	inBucket = 0x01
)

// Meta says where the newest transaction has left its tree.
type Meta struct {
	PageSize int64
	// Root is the first page of the tree, Freelist that of the list of free pages, and
	// High the number of pages that the file must have.
	Root, Freelist, High uint64
	// Transaction is the number of the transaction.
	Transaction uint64
	// Alone says that the other meta page, that of the transaction before, is damaged:
	// if it was the newer one in truth, a transaction is lost.
	Alone bool
}

// Need is how long the file must be, in bytes.
func (m Meta) Need() int64 { return int64(m.High) * m.PageSize }

// ReadMeta returns the newer one of the two meta pages that is whole.
func ReadMeta(file io.ReaderAt, size int64) (Meta, error) {
	first, err := metaAt(file, 0, size)
	if err == nil {
		second, err := metaAt(file, first.PageSize, size)
		return newer(first, second, err), nil
	}
	for page := int64(minPageSize); page <= maxPageSize; page *= 2 {
		if m, err := metaAt(file, page, size); err == nil && m.PageSize == page {
			m.Alone = true
			return m, nil
		}
	}
	return Meta{}, damaged("it does not begin as one: %w", err)
}

func newer(first, second Meta, err error) Meta {
	switch {
	case err != nil || second.PageSize != first.PageSize:
		first.Alone = true
		return first
	case second.Transaction > first.Transaction:
		return second
	default:
		return first
	}
}

func metaAt(file io.ReaderAt, at, size int64) (Meta, error) {
	var page [headerSize + metaSize]byte
	if at+int64(len(page)) > size {
		return Meta{}, fmt.Errorf("it has %d bytes", size)
	}
	if _, err := file.ReadAt(page[:], at); err != nil {
		return Meta{}, err
	}
	b := page[headerSize:]
	m := Meta{
		PageSize:    int64(binary.LittleEndian.Uint32(b[8:])),
		Root:        binary.LittleEndian.Uint64(b[16:]),
		Freelist:    binary.LittleEndian.Uint64(b[32:]),
		High:        binary.LittleEndian.Uint64(b[40:]),
		Transaction: binary.LittleEndian.Uint64(b[48:]),
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:56])
	switch {
	case binary.LittleEndian.Uint32(b) != magic:
		return Meta{}, fmt.Errorf("it lacks the mark of a database at byte %d", at+headerSize)
	case binary.LittleEndian.Uint32(b[4:]) != version:
		return Meta{}, fmt.Errorf("it is of another version of bbolt")
	case binary.LittleEndian.Uint64(b[56:]) != sum.Sum64():
		return Meta{}, fmt.Errorf("the sum of the meta page at byte %d is wrong", at)
	case m.PageSize < minPageSize || m.PageSize > maxPageSize || m.PageSize&(m.PageSize-1) != 0:
		return Meta{}, fmt.Errorf("it says that its pages have %d bytes", m.PageSize)
	}
	return m, nil
}
