package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
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
	i.dir = filepath.Join(p.dir, i.ID)
	i.life, i.kill = context.WithCancel(context.Background())
	i.executions = map[string]*process{}
	i.processes = map[*process]*processtree.Tree{}
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

// add makes a new instance, on disk and in memory.
func (p *Provider) add(i *instance) error {
	p.mu.Lock()
	full := int64(len(p.instances)) >= p.settings.MaxInstances
	p.mu.Unlock()
	if full {
		none := sdk.Errorf(sdk.CodeCreateFailed, "there are %d instances, which is the most", p.settings.MaxInstances)
		none.NoEffect = true
		return none
	}
	p.begin(i)
	if err := os.MkdirAll(i.workspace(), 0o700); err != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "make the workspace: %w", pathless(err))
	}
	text, err := json.Marshal(i.record)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(i.dir, "record.json"), text, 0o600); err != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "write the record: %w", pathless(err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances[i.ID] = i
	return nil
}

// adopt finds what an earlier process has made.
func (p *Provider) adopt() error {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(p.dir, entry.Name(), "record.json"))
		if err != nil {
			continue // it was being made or removed
		}
		i := &instance{}
		if err := json.Unmarshal(text, &i.record); err != nil || i.BrokerID != p.brokerID {
			continue
		}
		p.begin(i)
		p.instances[i.ID] = i
	}
	return nil
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
	for _, tree := range i.trees() {
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
