// Package snapshotbook keeps what the service cannot keep with a snapshot: labels, which
// template it is of, and, so that nobody reads it without the key of the tenant, what its
// copies are to have beside what is in it. It is one file for each snapshot, in a directory
// that all processes of the provider have together.
package snapshotbook

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Note is what is known of a snapshot.
type Note struct {
	// Reference is what the service calls it; empty while it has not answered.
	Reference string            `json:"reference,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Template  string            `json:"template,omitempty"`
	// CreatedAt is when it was asked for.
	CreatedAt time.Time `json:"created_at"`
	Memory    bool      `json:"memory,omitempty"`
	// Sealed is the content, which Open reads.
	Sealed []byte `json:"sealed,omitempty"`
	// Deleted says that it is no snapshot any more, and there at the service yet.
	Deleted bool `json:"deleted,omitempty"`
}

// Book has the notes of one directory.
type Book struct{ dir string }

// Open opens the book in a directory, which it makes.
func Open(dir string) (*Book, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of snapshots: %w", err)
	}
	if err := ondisk.RemoveAbandoned(dir); err != nil {
		return nil, fmt.Errorf("remove drafts of notes: %w", err)
	}
	return &Book{dir}, nil
}

const suffix = ".json"

// nameForm is that of what notes are of.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,200}$`)

func (b *Book) path(name string) (string, error) {
	if !nameForm.MatchString(name) {
		return "", fmt.Errorf("%.100q cannot be the name of a snapshot", name)
	}
	return filepath.Join(b.dir, name+suffix), nil
}

// Read returns a note. Another process may have written it meanwhile.
func (b *Book) Read(name string) (note Note, known bool, err error) {
	path, err := b.path(name)
	if err != nil {
		return note, false, err
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return note, false, nil
	case err != nil:
		return note, false, fmt.Errorf("read the note of a snapshot: %w", err)
	}
	if known = json.Unmarshal(text, &note) == nil; !known { // nothing can be made of it any more
		note = Note{}
	}
	return note, known, nil
}

// Write writes a note, whole or not at all.
func (b *Book) Write(name string, note Note) error {
	path, err := b.path(name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(note)
	if err != nil {
		return fmt.Errorf("encode the note of a snapshot: %w", err)
	}
	if err := ondisk.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the note of a snapshot: %w", err)
	}
	return nil
}

// Remove removes a note. One that is not there is a success.
func (b *Book) Remove(name string) error {
	path, err := b.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the note of a snapshot: %w", err)
	}
	return nil
}

// Names are those that there are notes of.
func (b *Book) Names() ([]string, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("list the notes of snapshots: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), suffix); ok && nameForm.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// ErrSealed says that a key opens nothing.
var ErrSealed = errors.New("it was made with another key")

// Seal encrypts content for the note of a name.
func Seal(key []byte, name string, content any) ([]byte, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode what is kept with a snapshot: %w", err)
	}
	aead, err := cipherOf(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails since Go 1.24
	return aead.Seal(nonce, nonce, text, []byte(name)), nil
}

// Unseal decrypts it. The error is ErrSealed if the key, the name or the text is another.
func Unseal(key []byte, name string, sealed []byte, content any) error {
	aead, err := cipherOf(key)
	if err != nil {
		return err
	}
	if len(sealed) < aead.NonceSize() {
		return ErrSealed
	}
	text, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(name))
	if err != nil {
		return ErrSealed
	}
	if err := json.Unmarshal(text, content); err != nil {
		return fmt.Errorf("read what is kept with a snapshot: %w", err)
	}
	return nil
}

func cipherOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
