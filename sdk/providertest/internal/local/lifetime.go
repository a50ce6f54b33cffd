package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/processtree"
)

var (
	_ sdk.Pauser        = (*Provider)(nil)
	_ sdk.PauseReleaser = (*Provider)(nil)
	_ sdk.TTLSetter     = (*Provider)(nil)
	_ sdk.Meter         = (*Provider)(nil)
)

func (i *instance) isPaused() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.paused
}

// Pause implements sdk.Pauser.
func (p *Provider) Pause(_ context.Context, instanceID string) error {
	return p.setPaused(instanceID, true, syscall.SIGSTOP)
}

// PauseReleasing implements sdk.PauseReleaser: what is stopped keeps its memory.
func (p *Provider) PauseReleasing(ctx context.Context, instanceID string) (released bool, err error) {
	return false, p.Pause(ctx, instanceID)
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(_ context.Context, instanceID string) error {
	return p.setPaused(instanceID, false, syscall.SIGCONT)
}

func (p *Provider) setPaused(instanceID string, paused bool, signal syscall.Signal) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	i.mu.Lock()
	i.paused = paused
	i.mu.Unlock()
	for _, tree := range i.trees() {
		if err := tree.Signal(signal); err != nil && !errors.Is(err, processtree.ErrEnded) {
			return err
		}
	}
	return nil
}

// SetTTL implements sdk.TTLSetter.
func (p *Provider) SetTTL(_ context.Context, instanceID string, ttl time.Duration) (time.Time, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return time.Time{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expireAt(p, time.Now().Add(ttl))
	return i.ExpiresAt, nil
}

// InstanceMetrics implements sdk.Meter.
func (p *Provider) InstanceMetrics(_ context.Context, instanceID string) (sdk.InstanceMetrics, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return sdk.InstanceMetrics{}, err
	}
	m := sdk.InstanceMetrics{MeasuredAt: time.Now()}
	for _, tree := range i.trees() {
		living, err := tree.Processes()
		if err != nil {
			return sdk.InstanceMetrics{}, err
		}
		m.Processes += int64(living)
	}
	err = filepath.WalkDir(i.dir, func(_ string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if info, err := entry.Info(); err == nil {
			m.Disk += info.Size()
		}
		return nil
	})
	i.mu.Lock()
	defer i.mu.Unlock()
	m.CPUTime = i.cpu
	return m, err
}
