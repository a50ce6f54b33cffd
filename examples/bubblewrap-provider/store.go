package main

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// store keeps instances, each in a directory that is named by its ID:
//
//	ID/kept/          has workspace and tmp, which code sees as /workspace and /tmp
//	ID/instance.json  what is known of it; without this file it is no instance
//
// There is no list of them in memory, so the process that comes after a crash knows
// the instances of the one before.
type store struct {
	dir, brokerID string
	creating      sync.Mutex
}

// record is what instance.json holds.
type record struct {
	BrokerID string
	Instance sdk.Instance
	Env      map[string]string
}

// errNoInstance says too that nothing was run, so that the broker can do it elsewhere.
var errNoInstance = &sdk.Error{Code: sdk.CodeNotFound, Message: "there is no such instance", NoEffect: true}

// errEnded is for code that may have run.
var errEnded = sdk.Errorf(sdk.CodeUnavailable, "the instance was destroyed while the code ran")

// open takes over what an earlier process left behind, and removes what that had
// made or destroyed half.
func (s *store) open(stateDir, brokerID string) error {
	s.dir, s.brokerID = filepath.Join(stateDir, "instances"), brokerID
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	for _, entry := range entries {
		if _, notThere := s.load(entry.Name()); notThere != nil {
			err = errors.Join(err, s.remove(entry.Name()))
		}
	}
	return withoutPath(err)
}

// create makes an instance. Its ID follows from the idempotency key, so the same key
// leads to the same instance. All IDs have one length: none is a prefix of another.
func (s *store) create(req sdk.CreateRequest) (sdk.Instance, error) {
	s.creating.Lock()
	defer s.creating.Unlock()
	key := sha256.Sum256([]byte(s.brokerID + "\n" + cmp.Or(req.IdempotencyKey, rand.Text())))
	id := hex.EncodeToString(key[:16])
	if there, err := s.load(id); err == nil {
		return there.Instance, nil
	}
	made := record{BrokerID: s.brokerID, Env: req.Env, Instance: sdk.Instance{
		ID: id, Template: req.Template, Labels: req.Labels, CreatedAt: time.Now().UTC(),
	}}
	text, err := json.Marshal(made)
	for _, directory := range keptDirectories {
		err = errors.Join(err, os.MkdirAll(filepath.Join(s.kept(id), directory), 0o700))
	}
	if err == nil {
		err = os.WriteFile(s.recordFile(id), text, 0o600)
	}
	if err != nil {
		_ = s.remove(id)
		return sdk.Instance{}, sdk.Errorf(sdk.CodeCreateFailed, "the directory of the instance cannot be made: %w", withoutPath(err))
	}
	return made.Instance, nil
}

// What code writes there is kept as long as the instance.
var keptDirectories = []string{"workspace", "tmp"}

const workspace = "/workspace"

// kept is where the directories are that an instance keeps.
func (s *store) kept(id string) string { return filepath.Join(s.dir, id, "kept") }

func (s *store) recordFile(id string) string { return filepath.Join(s.dir, id, "instance.json") }

var idForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// load returns what is known of an instance, or errNoInstance.
func (s *store) load(id string) (record, error) {
	if !idForm.MatchString(id) {
		return record{}, errNoInstance
	}
	text, err := os.ReadFile(s.recordFile(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, withoutPath(err)
	}
	var r record
	if json.Unmarshal(text, &r) != nil || r.BrokerID != s.brokerID {
		return record{}, errNoInstance
	}
	return r, nil
}

func (s *store) list() ([]sdk.Instance, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, withoutPath(err)
	}
	var all []sdk.Instance
	for _, entry := range entries {
		r, err := s.load(entry.Name())
		switch {
		case err == nil:
			all = append(all, r.Instance)
		case !errors.Is(err, errNoInstance):
			return nil, err
		}
	}
	return all, nil
}

// forget makes an instance unknown; its files stay until remove.
func (s *store) forget(id string) error {
	err := os.Remove(s.recordFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return withoutPath(err)
}

// remove removes the directory of an instance.
func (s *store) remove(id string) error { return removeTree(filepath.Join(s.dir, id)) }

// removeTree removes a directory, also where code took itself the right to do so.
func removeTree(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return withoutPath(os.RemoveAll(dir))
}

// withoutPath takes the path out of an error: it is one of the host.
func withoutPath(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
