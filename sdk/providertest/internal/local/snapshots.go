package local

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Snapshotter = (*Provider)(nil)

// keptRecord is what is kept of a snapshot in the clear.
type keptRecord struct {
	sdk.Snapshot
	Key      string
	BrokerID string
}

// keptContext is a context in a snapshot, whose variables are in the file of its ID.
type keptContext struct {
	State sdk.CodeContext
	Env   map[string]string
}

// keptState is what a snapshot has beside files.
type keptState struct {
	Env      map[string]string
	Contexts []keptContext
}

// stateFile is that of a keptState, and variablesFile that of a context, among the files.
const stateFile = "state.json"

func variablesFile(context string) string { return "variables-" + context }

func (p *Provider) snapshotDir() string { return filepath.Join(p.stateDir, "snapshots") }

func (p *Provider) keptPath(id, ending string) string {
	return filepath.Join(p.snapshotDir(), filepath.Base(id)+ending)
}

// Snapshot implements sdk.Snapshotter. Variables of contexts are kept as far as Python can
// pickle them; commands are not, so an instance in which any runs is refused.
func (p *Provider) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	i, err := p.find(req.InstanceID)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	p.creating.Lock()
	defer p.creating.Unlock()
	records, err := p.keptRecords()
	if err != nil {
		return sdk.Snapshot{}, err
	}
	for _, r := range records {
		if r.Key == req.IdempotencyKey {
			return r.Snapshot, nil
		}
	}
	if err := p.keepable(ctx, i); err != nil {
		return sdk.Snapshot{}, err
	}
	content, err := i.content(ctx)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	sealed, err := seal(req.Key, content)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	size := int64(len(sealed))
	if req.MaxBytes > 0 && size > req.MaxBytes {
		return sdk.Snapshot{}, sdk.Errorf(sdk.CodeQuotaExceeded, "the snapshot has %d bytes, and may have %d", size, req.MaxBytes)
	}
	r := keptRecord{
		Snapshot: sdk.Snapshot{
			ID: "snap" + newID(), Labels: maps.Clone(req.Labels), Template: i.describe().Template, CreatedAt: time.Now(), Bytes: size, Memory: true,
		},
		Key: req.IdempotencyKey, BrokerID: p.brokerID,
	}
	text, err := json.Marshal(r)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	err = errors.Join(os.MkdirAll(p.snapshotDir(), 0o700), os.WriteFile(p.keptPath(r.ID, ".sealed"), sealed, 0o600))
	if err == nil {
		err = os.WriteFile(p.keptPath(r.ID, ".json"), text, 0o600)
	}
	return r.Snapshot, err
}

// keepable refuses an instance of which not all can be kept.
func (p *Provider) keepable(ctx context.Context, i *instance) error {
	i.mu.Lock()
	paused := i.paused
	i.mu.Unlock()
	if paused {
		return sdk.Errorf(sdk.CodeConflict, "the instance is paused")
	}
	commands, err := p.ListCommands(ctx, i.describe().ID)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if c.State == sdk.CommandRunning {
			refused := sdk.NotSupported("local", sdk.CapabilitySnapshots)
			refused.Message = "an instance in which commands run is not kept"
			return refused
		}
	}
	return nil
}

// content is all that is kept of an instance, as a tar stream.
func (i *instance) content(ctx context.Context) ([]byte, error) {
	i.mu.Lock()
	contexts := append([]*codeContext(nil), i.contexts...)
	i.mu.Unlock()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	state := keptState{Env: i.Env}
	for _, c := range contexts {
		state.Contexts = append(state.Contexts, keptContext{c.state, c.env})
		variables, err := c.keep(ctx, filepath.Join(i.dir, variablesFile(c.state.ID)))
		if err == nil && variables != nil {
			err = addFile(w, variablesFile(c.state.ID), variables)
		}
		if err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(state)
	if err == nil {
		err = addFile(w, stateFile, text)
	}
	if err == nil {
		err = w.AddFS(prefixed{os.DirFS(i.dir)})
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// prefixed is the workspace in the directory of an instance.
type prefixed struct{ fs.FS }

func (p prefixed) Open(name string) (fs.File, error) { return p.FS.Open(name) }

// ReadDir leaves out what is the provider's own.
func (p prefixed) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(p.FS, name)
	var kept []fs.DirEntry
	for _, e := range entries {
		if name != "." || e.Name() == "workspace" || e.Name() == "packages" {
			kept = append(kept, e)
		}
	}
	return kept, err
}

func addFile(w *tar.Writer, name string, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// keep returns the variables of the context; nil for one that has none yet.
func (c *codeContext) keep(ctx context.Context, path string) ([]byte, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	from, in := c.variables, c.interpreter
	c.mu.Unlock()
	if in == nil {
		return from, nil
	}
	if err := in.ask(ctx, request{Keep: path}); err != nil {
		return nil, err
	}
	defer os.Remove(path)
	return os.ReadFile(path)
}

// ask has the interpreter do something that prints nothing.
func (in *interpreter) ask(ctx context.Context, r request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	go func() { _, _ = in.requests.Write(append(line, '\n')) }()
	select {
	case got := <-in.answers:
		if got.Code != 0 {
			return sdk.Errorf(sdk.CodeInternal, "the interpreter does not keep or take variables")
		}
		return nil
	case <-in.dead:
		return sdk.Errorf(sdk.CodeUnavailable, "the interpreter ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restore fills a new instance with what was kept.
func (i *instance) restore(content []byte) error {
	var state keptState
	variables := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		name, context := filepath.Join(i.dir, header.Name), strings.TrimPrefix(header.Name, "variables-")
		switch {
		case header.Name == stateFile:
			err = json.Unmarshal(data, &state)
		case context != header.Name:
			variables[context] = data
		case header.Typeflag == tar.TypeDir:
			err = os.MkdirAll(name, 0o700)
		case header.Typeflag == tar.TypeSymlink:
			err = os.Symlink(header.Linkname, name)
		default:
			err = os.WriteFile(name, data, fs.FileMode(header.Mode).Perm())
		}
		if err != nil {
			return err
		}
	}
	env := maps.Clone(state.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, i.Env)
	i.Env = env
	for _, kept := range state.Contexts {
		i.contexts = append(i.contexts, &codeContext{
			instance: i, env: kept.Env, turn: make(chan struct{}, 1), gone: make(chan struct{}), state: kept.State, variables: variables[kept.State.ID],
		})
	}
	return nil
}

// opened is what a snapshot has.
func (p *Provider) opened(source *sdk.SnapshotSource) ([]byte, error) {
	sealed, err := os.ReadFile(p.keptPath(source.ID, ".sealed"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sdk.Error{Code: sdk.CodeNotFound, Field: "snapshot", Message: "no such snapshot", NoEffect: true}
	}
	if err != nil {
		return nil, err
	}
	content, err := unseal(source.Key, sealed)
	if err != nil {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "snapshot", "the key does not open it")
	}
	return content, nil
}

// DeleteSnapshot implements sdk.Snapshotter.
func (p *Provider) DeleteSnapshot(_ context.Context, snapshotID string) error {
	for _, ending := range []string{".json", ".sealed"} {
		if err := os.Remove(p.keptPath(snapshotID, ending)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ListSnapshots implements sdk.Snapshotter.
func (p *Provider) ListSnapshots(context.Context) ([]sdk.Snapshot, error) {
	records, err := p.keptRecords()
	var list []sdk.Snapshot
	for _, r := range records {
		list = append(list, r.Snapshot)
	}
	return list, err
}

func (p *Provider) keptRecords() (list []keptRecord, err error) {
	entries, err := os.ReadDir(p.snapshotDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.snapshotDir(), entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was deleted meanwhile
		}
		var r keptRecord
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return nil, err
		}
		if r.BrokerID == p.brokerID {
			list = append(list, r)
		}
	}
	return list, err
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func seal(key, content []byte) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(nonce, nonce, content, nil), nil
}

func unseal(key, sealed []byte) ([]byte, error) {
	aead, err := gcm(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < aead.NonceSize() {
		return nil, io.ErrUnexpectedEOF
	}
	return aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], nil)
}
