package imagestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// digestPath is where it stands which layer a registry has under a digest.
func (s *Store) digestPath(registry, digest string) string {
	sum := sha256.Sum256([]byte(registry + " " + digest))
	return s.path(digestsName, hex.EncodeToString(sum[:]))
}

// diffID is that of what a registry has sent under a digest; "" if it is not known.
func (s *Store) diffID(registry, digest string) string {
	text, err := os.ReadFile(s.digestPath(registry, digest))
	if err != nil || !digestForm.Match(text) {
		return ""
	}
	return string(text)
}

// remember keeps what a registry has sent under a digest.
func (s *Store) remember(registry, digest, diffID string) error {
	return ondisk.WriteFile(s.digestPath(registry, digest), []byte(diffID), 0o600)
}

// forgetDigests removes the digests of layers that are not there.
func (s *Store) forgetDigests(needed map[string]bool) error {
	entries, err := os.ReadDir(s.path(digestsName))
	if err != nil {
		return err
	}
	var errs error
	for _, e := range entries {
		path := s.path(digestsName, e.Name())
		if text, err := os.ReadFile(path); err != nil || !needed[digits(string(text))] {
			errs = errors.Join(errs, os.Remove(path))
		}
	}
	return errs
}

// stepsKept is how long layers of steps are kept that no image needs: for the next try of a
// build that has failed.
const stepsKept = 24 * time.Hour

// keepStep keeps what a step has made, from now on.
func (s *Store) keepStep(key, diffID string) error {
	return ondisk.WriteFile(s.stepPath(key), []byte(diffID), 0o600)
}

// keptSteps adds the layers of steps that are kept to those that are needed, and forgets others.
func (s *Store) keptSteps(needed map[string]bool, now time.Time) error {
	entries, err := os.ReadDir(s.path(stepsName))
	if err != nil {
		return err
	}
	var errs error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		layer := digits(s.step(e.Name()))
		switch {
		case layer != "" && now.Sub(info.ModTime()) < stepsKept:
			needed[layer] = true
		case layer == "" || !needed[layer]:
			errs = errors.Join(errs, os.Remove(s.stepPath(e.Name())))
		}
	}
	return errs
}
