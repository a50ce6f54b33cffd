package boltfile

import (
	"bytes"
	"encoding/binary"
)

// element of a branch or a leaf.
type element struct {
	key, value []byte
	child      uint64 // of a branch
	bucket     bool   // the value of a leaf's is a bucket
}

// tree walks what hangs below a page whose keys are from low on and below high; nil is
// no bound. bucket is the name of the one at the top, nil in the list of them.
func (r *reader) tree(id uint64, low, high []byte, depth int, bucket []byte) error {
	if depth > maxDepth {
		return r.leave(damaged("page %d is deeper than %d levels", id, maxDepth))
	}
	p, err := r.take(id)
	if err != nil {
		return r.leave(err)
	}
	switch p.flags {
	case flagBranch:
		return r.branch(p, low, high, depth, bucket)
	case flagLeaf:
		return r.leaf(p.id, p.data, p.count, low, high, depth, bucket)
	default:
		return r.leave(damaged("page %d is neither branch nor leaf (%#x)", id, p.flags))
	}
}

// leave gives up a piece: the whole walk where nothing may be lost.
func (r *reader) leave(err error) error {
	if r.lost == nil {
		return err
	}
	r.lost(err)
	return nil
}

func (r *reader) branch(p page, low, high []byte, depth int, bucket []byte) error {
	if p.count == 0 {
		return r.leave(damaged("page %d is a branch with nothing below it", p.id))
	}
	elements := make([]element, 0, min(p.count, len(p.data)/elementSize))
	next := uint64(headerSize) + uint64(p.count)*elementSize
	for i := range p.count {
		at := headerSize + i*elementSize
		if at+elementSize > len(p.data) {
			return r.leave(damaged("page %d has more entries than room", p.id))
		}
		e := p.data[at:]
		pos, keySize := binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:])
		key, ok := cut(e, pos, keySize)
		if !ok || !r.follows(at, pos, &next, keySize, 0) {
			if err := r.leave(damaged("entry %d of page %d does not point at what is its own", i, p.id)); err != nil {
				return err
			}
			continue
		}
		elements = append(elements, element{key: key, child: binary.LittleEndian.Uint64(e[8:])})
	}
	if err := r.ordered(p.id, elements, low, high); err != nil {
		return err
	}
	for i, e := range elements {
		end := high
		if i+1 < len(elements) {
			end = elements[i+1].key
		}
		if err := r.tree(e.child, e.key, end, depth+1, bucket); err != nil {
			return err
		}
	}
	return nil
}

// inValue stands for the number of a page that is a value in another one.
const inValue = 0

// leaf visits the records of a page, or of a small bucket that stands in a value.
func (r *reader) leaf(id uint64, data []byte, count int, low, high []byte, depth int, bucket []byte) error {
	small := bucket != nil && id == inValue
	if count == 0 && depth > 0 && !small {
		return r.leave(damaged("page %d holds nothing", id))
	}
	elements := make([]element, 0, min(count, len(data)/elementSize))
	next := uint64(headerSize) + uint64(count)*elementSize
	for i := range count {
		at := headerSize + i*elementSize
		if at+elementSize > len(data) {
			return r.leave(damaged("page %d has more entries than room", id))
		}
		e := data[at:]
		flags, pos := binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint32(e[4:])
		keySize, valueSize := binary.LittleEndian.Uint32(e[8:]), binary.LittleEndian.Uint32(e[12:])
		key, ok := cut(e, pos, keySize)
		value, whole := cut(e, pos, keySize, valueSize)
		if !ok || !whole || flags > inBucket || keySize == 0 || !r.follows(at, pos, &next, keySize, valueSize) {
			if err := r.leave(damaged("entry %d of page %d does not point at what is its own", i, id)); err != nil {
				return err
			}
			continue
		}
		elements = append(elements, element{key: key, value: value, bucket: flags == inBucket})
	}
	if small && r.lost == nil && next != uint64(len(data)) {
		return damaged("the bucket %q has another length than its records", bucket)
	}
	if err := r.ordered(id, elements, low, high); err != nil {
		return err
	}
	for _, e := range elements {
		if err := r.record(id, e, depth, bucket); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) record(id uint64, e element, depth int, bucket []byte) error {
	switch {
	case e.bucket:
		return r.bucket(id, e, depth, bucket)
	case bucket == nil:
		return r.leave(damaged("page %d has a record outside all buckets", id))
	case r.visit != nil:
		return r.visit(string(bucket), e.key, e.value)
	default:
		return nil
	}
}

// bucket walks one that is an element of page id.
func (r *reader) bucket(id uint64, e element, depth int, inside []byte) error {
	if inside != nil || len(e.value) < bucketSize {
		return r.leave(damaged("page %d has a bucket where none can be", id))
	}
	if r.visitBucket != nil {
		r.visitBucket(string(e.key), binary.LittleEndian.Uint64(e.value[8:]))
	}
	if root := binary.LittleEndian.Uint64(e.value); root != 0 {
		return r.tree(root, nil, nil, depth+1, e.key)
	}
	small := e.value[bucketSize:] // a page in the value itself
	if len(small) < headerSize || binary.LittleEndian.Uint16(small[8:]) != flagLeaf {
		return r.leave(damaged("the bucket %q in page %d is no bucket", e.key, id))
	}
	return r.leaf(inValue, small, int(binary.LittleEndian.Uint16(small[10:])), nil, nil, depth+1, e.key)
}

// ordered checks that keys ascend and are within the bounds.
func (r *reader) ordered(id uint64, elements []element, low, high []byte) error {
	for i, e := range elements {
		wrong := low != nil && bytes.Compare(e.key, low) < 0 ||
			high != nil && bytes.Compare(e.key, high) >= 0 ||
			i > 0 && bytes.Compare(e.key, elements[i-1].key) <= 0
		if wrong {
			return r.leave(damaged("the keys of page %d are not in order", id))
		}
	}
	return nil
}

// follows reports whether what an entry points at begins where that of the one before
// ended, as bbolt writes it: else the number of entries is wrong, or a length. It does
// not matter where everything is taken that can be read.
func (r *reader) follows(at int, pos uint32, next *uint64, keySize, valueSize uint32) bool {
	begins := uint64(at) + uint64(pos)
	ok := begins == *next || r.lost != nil
	*next = begins + uint64(keySize) + uint64(valueSize)
	return ok
}

// cut returns the last of the pieces that follow each other from pos on, if they are
// within b.
func cut(b []byte, pos uint32, sizes ...uint32) (piece []byte, ok bool) {
	begin, end := uint64(pos), uint64(pos)
	for _, size := range sizes {
		begin, end = end, end+uint64(size)
	}
	if end > uint64(len(b)) {
		return nil, false
	}
	return b[begin:end:end], true
}
