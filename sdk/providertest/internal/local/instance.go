package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
	"github.com/sandbox-broker/sandbox-broker/sdk/processtree"
)

// record is what is kept of an instance on disk.
type record struct {
	sdk.Instance
	Env      map[string]string
	Key      string
	BrokerID string
}

// instance is a directory and the processes that run in it.
type instance struct {
	record
	dir string // with the record and the workspace
	// volumes that it has, by ID.
	volumes []string

	// life ends with the instance.
	life context.Context
	kill context.CancelFunc

	mu         sync.Mutex
	expiry     *time.Timer
	paused     bool
	executions map[string]*process
	processes  map[*process]*processtree.Tree
	contexts   []*codeContext
	cpu        time.Duration // of processes that have ended
	network    *network      // set before anybody else has the instance
}

func newID() string { return strings.ToLower(rand.Text())[:12] }

func (i *instance) workspace() string { return filepath.Join(i.dir, "workspace") }

func (i *instance) describe() sdk.Instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.Instance
}

// begin makes the instance ready to run code.
func (p *Provider) begin(i *instance) {
	i.dir = p.dir.of(i.ID)
	i.life, i.kill = context.WithCancel(context.Background())
	i.executions = map[string]*process{}
	i.processes = map[*process]*processtree.Tree{}
	if err := p.openNetwork(i); err != nil {
		p.logger.Warn("open the network", "instance", i.ID, "error", err)
	}
	i.expireAt(p, i.ExpiresAt)
}

// expireAt destroys the instance at a time. The caller holds the lock, or is alone.
func (i *instance) expireAt(p *Provider, at time.Time) {
	if i.expiry != nil {
		i.expiry.Stop()
	}
	i.ExpiresAt = at
	i.expiry = time.AfterFunc(time.Until(at), func() {
		if err := p.Destroy(i.life, i.ID); err != nil {
			p.logger.Warn("expire", "instance", i.ID, "error", err)
		}
	})
}

// add makes a new instance, on disk and in memory, from what a snapshot has if that is not nil.
func (p *Provider) add(i *instance, content []byte) error {
	p.mu.Lock()
	full := int64(len(p.instances)) >= p.settings.MaxInstances
	p.mu.Unlock()
	if full {
		none := sdk.Errorf(sdk.CodeCreateFailed, "there are %d instances, which is the most", p.settings.MaxInstances)
		none.NoEffect = true
		return none
	}
	p.begin(i)
	if err := p.keep(i, content); err != nil {
		return errors.Join(err, i.end())
	}
	return nil
}

// keep writes down an instance that has begun, and knows it from then on.
func (p *Provider) keep(i *instance, content []byte) error {
	if err := os.MkdirAll(i.workspace(), 0o700); err != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "make the workspace: %w", pathless(err))
	}
	if content != nil {
		if err := i.restore(content); err != nil {
			return sdk.Errorf(sdk.CodeCreateFailed, "take what the snapshot has: %w", pathless(err))
		}
	}
	if err := i.write(); err != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "write the record: %w", pathless(err))
	}
	return held.give(p, i)
}

// reclaim finds what an earlier process has made.
func (p *Provider) reclaim() error {
	found, err := p.dir.records()
	if err != nil {
		return err
	}
	for _, r := range found {
		if r.BrokerID != p.brokerID {
			continue
		}
		i := &instance{record: r}
		p.begin(i)
		if err := held.give(p, i); err != nil {
			return err
		}
	}
	return nil
}

// instancesDir has the instances of all brokers, each in a directory of its own.
type instancesDir string

func (d instancesDir) of(instanceID string) string {
	return filepath.Join(string(d), filepath.Base(instanceID))
}

func (d instancesDir) records() (all []record, err error) {
	entries, err := os.ReadDir(string(d))
	for _, entry := range entries {
		if r, err := d.record(entry.Name()); err == nil { // else it was being made or removed
			all = append(all, r)
		}
	}
	return all, err
}

func (d instancesDir) record(instanceID string) (r record, err error) {
	text, err := os.ReadFile(filepath.Join(d.of(instanceID), "record.json"))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// write writes down what is kept of an instance.
func (i *instance) write() error {
	text, err := json.Marshal(i.record)
	if err != nil {
		return err
	}
	return ondisk.WriteFile(filepath.Join(i.dir, "record.json"), text, 0o600)
}

func (p *Provider) find(instanceID string) (*instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	if i := p.instances[instanceID]; i != nil {
		return i, nil
	}
	return nil, sdk.Errorf(sdk.CodeNotFound, "no such instance")
}

func (p *Provider) byKey(key string) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.instances {
		if i.Key == key {
			return i
		}
	}
	return nil
}

// stop ends all that runs in the instance.
func (i *instance) stop() {
	i.mu.Lock()
	i.expiry.Stop()
	i.mu.Unlock()
	i.kill()
	i.network.close()
	i.mu.Lock()
	running := maps.Clone(i.processes)
	i.mu.Unlock()
	for run, tree := range running {
		run.end(errDestroyed) // also commands, which who has started them may know alone
		<-tree.Done()
	}
}

// end removes the instance.
func (i *instance) end() error {
	i.stop()
	return os.RemoveAll(i.dir)
}

// pathless takes the path out of an error: it is one of the host.
func pathless(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
