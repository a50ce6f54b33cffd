package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sandbox-broker/sandbox-broker/config/atomicfile"
	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

type keygenCommand struct {
	File string `arg:"" optional:"" help:"The key file to make; standard output unless given."`
	Add  bool   `help:"Put the new key before those of a file that is there already, as the one that seals from now on."`
}

// Run makes a key for sealed values.
func (c *keygenCommand) Run(term *terminal) error {
	key := seal.NewKey()
	switch {
	case c.File == "" && c.Add:
		return errors.New("--add takes the name of a key file")
	case c.File == "":
		_, err := fmt.Fprintln(term.out, key)
		return err
	case c.Add:
		if err := addKey(c.File, key); err != nil {
			return err
		}
	default:
		if err := writeNew(c.File, key+"\n"); err != nil {
			return err
		}
	}
	ring, err := seal.ParseKeys(key)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(term.out, "The key %s is in %s. Whoever has that file can read every value that it sealed; without it nobody can: keep a copy in a safe place.\n", ring.IDs()[0], c.File)
	return err
}

// writeNew writes a file that was not there, for its owner alone.
func writeNew(path, content string) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; --add puts another key into it", path)
	}
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	if _, err := file.WriteString(content); err != nil {
		return err
	}
	return file.Sync()
}

// addKey puts a key at the beginning of a key file.
func addKey(path, key string) error {
	text, err := seal.ReadKeyFile(path)
	if err != nil {
		return fileError(path, err)
	}
	if _, err := seal.ParseKeys(string(text)); err != nil {
		return fileError(path, err)
	}
	if err := atomicfile.Replace(path, append([]byte(key+"\n"), text...), sha256.Sum256(text)); err != nil {
		return fileError(path, err)
	}
	return nil
}

func fileError(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }
