// Package tarstream reads tar archives that arrive as a stream, and tells one that was
// cut from one that is whole: an archive ends with zeros, and a sender that died
// between two entries has not sent them. Package archive/tar takes the end of the
// stream for the end of the archive.
//
// What may be unpacked where is for whoever reads.
package tarstream

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
)

// block is what archives are made of, in bytes.
const block = 512

// Reader is a tar.Reader whose Next fails with io.ErrUnexpectedEOF where the archive
// lacks its end. An empty stream is no archive.
type Reader struct {
	*tar.Reader
	from *counter
	// end is where the data of the last entry ends, without what fills its block.
	end int64
}

// NewReader returns a reader of an archive.
func NewReader(from io.Reader) *Reader {
	c := &counter{from: from}
	return &Reader{Reader: tar.NewReader(c), from: c}
}

// Next is that of tar.Reader.
func (r *Reader) Next() (*tar.Header, error) {
	header, err := r.Reader.Next()
	switch {
	case errors.Is(err, io.EOF) && (r.from.read < r.end+block || r.from.zeros < block):
		return nil, io.ErrUnexpectedEOF // not even the first block of the end was there
	case err != nil:
		return nil, err
	}
	r.end = r.from.read
	if header.Typeflag == tar.TypeReg {
		r.end += (header.Size + block - 1) / block * block
	}
	return header, nil
}

// counter counts what was read, and the zeros at its end.
type counter struct {
	from        io.Reader
	read, zeros int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.read += int64(n)
	if rest := len(bytes.TrimRight(p[:n], "\x00")); rest > 0 {
		c.zeros = int64(n - rest)
	} else {
		c.zeros += int64(n)
	}
	return n, err
}
