package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is a file or a directory that was read for a configuration, or was to be
// read and could not.
type File struct {
	// Path is absolute and clean; links are not resolved.
	Path string
	// Name is what diagnostics call it.
	Name string
	Kind FileKind
	// Err says why it could not be read, without its path; nil if it could.
	Err error
	// SHA256 of the content; zero for a directory and when there is an Err.
	SHA256 [sha256.Size]byte
}

// FileKind says what a File is to the configuration.
type FileKind string

// The kinds of files.
const (
	FileMain      FileKind = "main"      // the file named to Load
	FileIncluded  FileKind = "included"  // one that include brought in
	FileDirectory FileKind = "directory" // where include looked for files
	FileValue     FileKind = "value"     // read by file()
	FileKeys      FileKind = "keys"      // of key_file

	FileCertificate FileKind = "certificate" // of tls
	FilePrivateKey  FileKind = "private_key"
	FileClientCA    FileKind = "client_ca"
)

// reading is what one Load reads. Each file is read once, so that all of the
// configuration speaks of the same content.
type reading struct {
	// given is content to take in place of a file's, by path.
	given    map[string][]byte
	files    []File
	contents map[string][]byte
}

func newReading(given map[string][]byte) *reading {
	return &reading{given: given, contents: map[string][]byte{}}
}

// read returns the content of a file of at most limit bytes. Its errors do not
// repeat the path, which may hold a secret.
func (r *reading) read(path, name string, kind FileKind, limit int64) ([]byte, error) {
	return r.readBy(func(path string) ([]byte, error) {
		content, given := r.given[path]
		switch {
		case !given:
			return readRegularFile(path, limit)
		case int64(len(content)) > limit:
			return nil, tooLarge(limit)
		}
		return content, nil
	}, path, name, kind)
}

// readBy reads a file by a function, the first time.
func (r *reading) readBy(read func(path string) ([]byte, error), path, name string, kind FileKind) ([]byte, error) {
	for _, f := range r.files {
		if f.Path == path && f.Kind == kind {
			return r.contents[path], f.Err
		}
	}
	content, err := read(path)
	r.add(File{Path: path, Name: name, Kind: kind, Err: err}, content)
	return content, err
}

// add notes a file that was read or could not be.
func (r *reading) add(f File, content []byte) {
	if f.Err == nil && f.Kind != FileDirectory {
		f.SHA256 = sha256.Sum256(content)
		r.contents[f.Path] = content
	}
	r.files = append(r.files, f)
}

// maxDirectory bounds the entries of a directory that include looks into.
const maxDirectory = 10_000

// list returns the names in a directory, in no order.
func (r *reading) list(dir, name string) ([]string, error) {
	names, err := readDirectory(dir)
	for _, f := range r.files {
		if f.Path == dir && f.Kind == FileDirectory {
			return names, err
		}
	}
	r.add(File{Path: dir, Name: name, Kind: FileDirectory, Err: err}, nil)
	return names, err
}

func readDirectory(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxDirectory + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, withoutPath(err)
	}
	if len(names) > maxDirectory {
		return nil, fmt.Errorf("more than %d entries", maxDirectory)
	}
	return names, nil
}

// revision is the sum over the names and contents of all that was read, in whichever
// order that was: settings are not always evaluated in the same.
func (r *reading) revision() string {
	var lines []string
	for _, f := range r.files {
		state := "read"
		if f.Err != nil {
			state = f.Err.Error()
		}
		lines = append(lines, fmt.Sprintf("%s\x00%s\x00%s\x00%x\n", f.Kind, f.Path, strings.ReplaceAll(state, "\n", " "), f.SHA256))
	}
	slices.Sort(lines)
	sum := sha256.New()
	for _, line := range lines {
		_, _ = io.WriteString(sum, line) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// readRegularFile reads a file of at most limit bytes. Its errors do not repeat
// the path, which may hold a secret.
func readRegularFile(path string, limit int64) ([]byte, error) {
	// Stat first: to open a named pipe would wait for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if int64(len(content)) > limit {
		return nil, tooLarge(limit)
	}
	return content, nil
}

func tooLarge(limit int64) error { return fmt.Errorf("larger than %d KiB", limit>>10) }

func withoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// absolute resolves a path of a file in dir, which is absolute.
func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
