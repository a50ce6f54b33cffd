package audit

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
)

// maxLine is the longest line that is read, in bytes. Code that is included is
// bounded by the largest request.
const maxLine = 64 << 20

// errTorn is a line that does not end.
var errTorn = errors.New("the line does not end")

// Reader reads the lines of a file.
type Reader struct {
	file   *os.File
	unzip  *gzip.Reader
	broken error // why a compressed file has no line that can be read
	lines  *bufio.Reader
	offset int64 // of the next line, in the uncompressed text
	last   []byte
}

// OpenReader opens a file of the log, compressed or not. One that the log has compressed
// since it was listed is read as it is now. What is wrong with the text of a file is for
// Next to say.
func OpenReader(path string, compressed bool) (*Reader, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && !compressed {
		if again, gone := os.Open(path + ".gz"); gone == nil {
			file, err, compressed = again, nil, true
		}
	}
	if err != nil {
		return nil, err
	}
	r := &Reader{file: file, lines: bufio.NewReaderSize(file, 64<<10)}
	if compressed {
		if r.unzip, err = gzip.NewReader(r.lines); err == nil {
			r.lines = bufio.NewReaderSize(r.unzip, 64<<10)
		} else if r.broken = err; errors.Is(err, io.EOF) {
			r.broken = io.ErrUnexpectedEOF
		}
	}
	return r, nil
}

// Next returns the next line without its newline, valid until the next call. The
// error is io.EOF at the end of the file.
func (r *Reader) Next() (text []byte, err error) {
	r.last, err = r.read()
	return r.last, err
}

// Last returns again what Next has returned.
func (r *Reader) Last() []byte { return r.last }

func (r *Reader) read() ([]byte, error) {
	if r.broken != nil {
		return nil, r.broken
	}
	var long []byte
	for {
		piece, err := r.lines.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			r.offset += int64(len(piece))
			return piece[:len(piece)-1], nil
		case err == nil:
			long = append(long, piece...)
			r.offset += int64(len(long))
			return long[:len(long)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, piece...); len(long) > maxLine {
				return nil, errTorn
			}
		case errors.Is(err, io.EOF) && len(long)+len(piece) > 0:
			return nil, errTorn
		default:
			return nil, err
		}
	}
}

// Offset is where the next line begins, in the text as it is without compression.
func (r *Reader) Offset() int64 { return r.offset }

// Skip goes to an offset of a file that was just opened.
func (r *Reader) Skip(offset int64) error {
	if r.broken != nil {
		return r.broken
	}
	if r.unzip != nil {
		_, err := io.CopyN(io.Discard, r.lines, offset)
		r.offset = offset
		return err
	}
	_, err := r.file.Seek(offset, io.SeekStart)
	r.lines.Reset(r.file)
	r.offset = offset
	return err
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
