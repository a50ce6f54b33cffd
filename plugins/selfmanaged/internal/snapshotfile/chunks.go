package snapshotfile

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
)

// ErrSealed is for a content that the key does not open: it is another key, or the file was
// changed.
var ErrSealed = errors.New("the key does not open the snapshot, or it was changed")

// chunkBytes is how much is encrypted at once.
const chunkBytes = 256 << 10

// nonce numbers the chunks of one key. Its last byte says which is the last chunk, so that
// none can be cut off: this is STREAM (Hoang, Reyhanitabar, Rogaway and Vizár, 2015), as
// age has it.
type nonce struct {
	bytes [12]byte
	count uint64
}

func (n *nonce) next(last bool) []byte {
	binary.BigEndian.PutUint64(n.bytes[3:], n.count)
	n.bytes[11] = 0
	if last {
		n.bytes[11] = 1
	}
	n.count++
	return n.bytes[:]
}

// sealer encrypts what is written to it. The last chunk is written by finish.
type sealer struct {
	aead  cipher.AEAD
	to    io.Writer
	nonce nonce
	plain []byte // of the next chunk
	out   []byte
}

func newSealer(aead cipher.AEAD, to io.Writer) *sealer {
	return &sealer{aead: aead, to: to, plain: make([]byte, 0, chunkBytes), out: make([]byte, 0, chunkBytes+aead.Overhead())}
}

// Write implements io.Writer.
func (s *sealer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		if len(s.plain) == chunkBytes { // there is more, so it is not the last
			if err := s.flush(false); err != nil {
				return written, err
			}
		}
		n := copy(s.plain[len(s.plain):chunkBytes], p)
		s.plain = s.plain[:len(s.plain)+n]
		p, written = p[n:], written+n
	}
	return written, nil
}

func (s *sealer) finish() error { return s.flush(true) }

func (s *sealer) flush(last bool) error {
	_, err := s.to.Write(s.aead.Seal(s.out, s.nonce.next(last), s.plain, nil))
	s.plain = s.plain[:0]
	return err
}

// opener decrypts what a sealer has written. Whatever it returns has been checked; the end
// is only reported where the last chunk was.
type opener struct {
	aead  cipher.AEAD
	from  io.Reader
	nonce nonce
	in    []byte
	plain []byte // not taken yet
	err   error
}

func newOpener(aead cipher.AEAD, from io.Reader) *opener {
	return &opener{aead: aead, from: from, in: make([]byte, chunkBytes+aead.Overhead()+1)}
}

// Read implements io.Reader.
func (o *opener) Read(p []byte) (int, error) {
	for len(o.plain) == 0 {
		if o.err != nil {
			return 0, o.err
		}
		o.fill()
	}
	n := copy(p, o.plain)
	o.plain = o.plain[n:]
	return n, nil
}

// fill decrypts the next chunk. Which one is the last shows in what follows it, so a byte
// of that is read with it.
func (o *opener) fill() {
	whole := chunkBytes + o.aead.Overhead()
	have := 0
	if o.nonce.count > 0 {
		o.in[0], have = o.in[whole], 1
	}
	n, err := io.ReadFull(o.from, o.in[have:])
	have += n
	last := false
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		last, whole = true, have
	case err != nil:
		o.err = err
		return
	}
	o.plain, err = o.aead.Open(o.plain[:0:0], o.nonce.next(last), o.in[:whole], nil)
	switch {
	case err != nil:
		o.plain, o.err = nil, ErrSealed
	case last:
		o.err = io.EOF
	}
}
