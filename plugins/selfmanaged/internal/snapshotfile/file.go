package snapshotfile

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// magic begins a file; its last characters are the version of the format.
const magic = "SBSNAP01"

// Bounds.
const (
	maxHeader = 256 << 10
	saltBytes = 32
	// KeyBytes is the length of a key.
	KeyBytes = 32
)

// Header is what is known of a snapshot without its key. It cannot be changed without the
// content becoming unreadable.
type Header struct {
	ID             string            `json:"id"`
	Labels         map[string]string `json:"labels"`
	Template       string            `json:"template"`
	CreatedAt      time.Time         `json:"created_at"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	// MadeWith is what a copy must find as it was, by what it is.
	MadeWith map[string]string `json:"made_with"`
	// Layers of packages that a copy must find too, by their IDs.
	Layers []string `json:"layers,omitempty"`
	// Image is what a copy must find too that was built of the template.
	Image string `json:"image,omitempty"`
	// Salt makes the key of the file another than that of all others.
	Salt []byte `json:"salt"`
	// Bytes of the whole file, which is not in it.
	Bytes int64 `json:"-"`
}

// errForm is for files that are none of ours.
var errForm = errors.New("it is no snapshot of this version")

// write writes a whole file. fill writes the content.
func write(to io.Writer, h Header, key []byte, fill func(io.Writer) error) error {
	h.Salt = make([]byte, saltBytes)
	_, _ = rand.Read(h.Salt) // never fails since Go 1.24
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("write the header: %w", err)
	}
	if len(text) > maxHeader {
		return fmt.Errorf("the header would have %d bytes, more than %d", len(text), maxHeader)
	}
	aead, err := cipherFor(key, h.Salt, text)
	if err != nil {
		return err
	}
	start := binary.BigEndian.AppendUint32([]byte(magic), uint32(len(text)))
	if _, err := to.Write(append(start, text...)); err != nil {
		return err
	}
	s := newSealer(aead, to)
	if err := fill(s); err != nil {
		return err
	}
	return s.finish()
}

// cipherFor makes the cipher of one file: its header decides on the key too.
func cipherFor(key, salt, header []byte) (cipher.AEAD, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("a key has %d bytes", KeyBytes)
	}
	sum := sha256.Sum256(header)
	own, err := hkdf.Key(sha256.New, key, salt, "sandbox-broker snapshot 1 "+string(sum[:]), 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key: %w", err)
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// readHeader reads the beginning of a file.
func readHeader(from io.Reader) (h Header, text []byte, err error) {
	var start [len(magic) + 4]byte
	if _, err := io.ReadFull(from, start[:]); err != nil {
		return h, nil, fmt.Errorf("read the header: %w", err)
	}
	length := binary.BigEndian.Uint32(start[len(magic):])
	if string(start[:len(magic)]) != magic || length > maxHeader {
		return h, nil, errForm
	}
	text = make([]byte, length)
	if _, err := io.ReadFull(from, text); err != nil {
		return h, nil, fmt.Errorf("read the header: %w", err)
	}
	if err := json.Unmarshal(text, &h); err != nil || len(h.Salt) != saltBytes {
		return h, nil, errForm
	}
	return h, text, nil
}

// File is a snapshot that is being read.
type File struct {
	Header Header
	text   []byte
	file   *os.File
}

// Content decrypts the content, once. With the wrong key, the first read fails.
func (f *File) Content(key []byte) (io.Reader, error) {
	aead, err := cipherFor(key, f.Header.Salt, f.text)
	if err != nil {
		return nil, err
	}
	return newOpener(aead, bufio.NewReaderSize(f.file, 1<<20)), nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
