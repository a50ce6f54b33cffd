package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// instances are those that sessions were given and that have not ended.
type instances struct {
	logger hclog.Logger
	from   places
	reuse  reuse
	// patience bounds the wait for the connections of an instance that ends.
	patience time.Duration

	mu     sync.Mutex
	closed bool
	byID   map[string]*instance
	keys   map[string]*creation
}

// places are the pool: it gets back what instances had that have ended.
type places interface {
	// Running notes that code runs in one of its sandboxes, until ended is called.
	Running() (ended func())
	// Release gives back the place of a sandbox that is gone.
	Release()
	// Keep takes a sandbox that its tenant, and nobody else, may get again.
	Keep(tenant, template string, s *sandbox)
}

// creation is a Create with an idempotency key, running or done.
type creation struct {
	done     chan struct{}
	instance sdk.Instance
	err      error
}

func newInstances(logger hclog.Logger) *instances {
	return &instances{logger: logger, patience: networkPatience, byID: map[string]*instance{}, keys: map[string]*creation{}}
}

// once creates an instance, but for the first that comes with a key alone; the others get
// what that one gets.
func (all *instances) once(ctx context.Context, key string, create func() (sdk.Instance, error)) (sdk.Instance, error) {
	if key == "" {
		return create()
	}
	for {
		all.mu.Lock()
		c, running := all.keys[key]
		if !running {
			c = &creation{done: make(chan struct{})}
			all.keys[key] = c
		}
		all.mu.Unlock()
		if !running {
			all.createFor(key, c, create)
			return c.instance, c.err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return sdk.Instance{}, ctx.Err()
		}
		if !errors.Is(c.err, context.Canceled) && !errors.Is(c.err, context.DeadlineExceeded) {
			return c.instance, c.err
		}
		// Whoever asked first has given up; that says nothing about us.
	}
}

// createFor is what the first to come with a key does for all.
func (all *instances) createFor(key string, c *creation, create func() (sdk.Instance, error)) {
	defer close(c.done)
	c.instance, c.err = create()
	if c.err != nil { // nothing was made: the key may be used again
		all.mu.Lock()
		delete(all.keys, key)
		all.mu.Unlock()
	}
}

// add makes an instance known, unless the provider closes.
func (all *instances) add(i *instance) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return false
	}
	all.byID[i.ID] = i
	if !i.ExpiresAt.IsZero() {
		i.expiry = time.AfterFunc(time.Until(i.ExpiresAt), func() { all.expire(i) })
	}
	return true
}

// lookUp returns an instance that is known, nil if it is not.
func (all *instances) lookUp(instanceID string) *instance {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[instanceID]
}

// find returns an instance that is known.
func (all *instances) find(instanceID string) (*instance, error) {
	if i := all.lookUp(instanceID); i != nil {
		return i, nil
	}
	return nil, &sdk.Error{Code: sdk.CodeNotFound, Message: "no such instance", NoEffect: true}
}

// list is what is known, as the SDK has it.
func (all *instances) list() []sdk.Instance {
	all.mu.Lock()
	defer all.mu.Unlock()
	list := make([]sdk.Instance, 0, len(all.byID))
	for _, i := range all.byID {
		list = append(list, i.Instance)
	}
	return list
}

// setTTL has an instance end after another time from now, and says when.
func (all *instances) setTTL(instanceID string, ttl time.Duration) (time.Time, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := all.byID[instanceID]
	if i == nil {
		return time.Time{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	if i.expiry != nil {
		i.expiry.Stop()
	}
	i.ExpiresAt = time.Now().Add(ttl)
	i.expiry = time.AfterFunc(ttl, func() { all.expire(i) })
	return i.ExpiresAt, nil
}

// expire ends an instance whose time is over, unless it was given more at the
// very moment.
func (all *instances) expire(i *instance) {
	all.mu.Lock()
	over := !time.Now().Before(i.ExpiresAt)
	all.mu.Unlock()
	if over {
		all.lose(i)
	}
}

// take removes an instance from those that are known, nil if it is not among them.
// Whoever gets it ends it.
func (all *instances) take(instanceID string) *instance {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := all.byID[instanceID]
	if i != nil {
		all.forget(i)
	}
	return i
}

// forget is called with the lock held.
func (all *instances) forget(i *instance) {
	delete(all.byID, i.ID)
	delete(all.keys, i.key)
	if i.expiry != nil {
		i.expiry.Stop()
	}
}

// running notes that code runs, until ended is called.
func (all *instances) running() (ended func()) { return all.from.Running() }

// lose takes back an instance that is of no use any more, and says whether it
// was still known. What it holds is freed in the background, for its caller has
// waited long enough; the pool waits for that when it closes.
func (all *instances) lose(i *instance) bool {
	if all.take(i.ID) == nil {
		return false // somebody ends it already
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), makeTimeout)
		defer cancel()
		if err := all.end(ctx, i); err != nil {
			all.logger.Warn("destroy sandbox", "error", err)
		}
	}()
	return true
}

// networkPatience is how long the connections of an instance may take to end before its sandbox
// is destroyed all the same. They end at once unless this process is starved.
const networkPatience = 10 * time.Second

// end destroys an instance that is not known any more.
func (all *instances) end(ctx context.Context, i *instance) error {
	all.closeNetwork(ctx, i)
	s, put := i.finish()
	if put != nil { // its sandbox has ended, and gave back its place
		if err := put.remove(); err != nil {
			return fmt.Errorf("destroy the paused instance %s: %w", i.ID, err)
		}
		return nil
	}
	if all.reuse.allows(i) && all.handOver(ctx, i) {
		return nil
	}
	defer all.from.Release()
	if err := s.Destroy(ctx); err != nil {
		return fmt.Errorf("destroy instance %s: %w", i.ID, err)
	}
	return nil
}

// closeNetwork ends the connections of an instance. What keeps one of them does not keep the
// sandbox, its place and whoever waits for its end.
func (all *instances) closeNetwork(ctx context.Context, i *instance) {
	if out, _ := i.network.current(); out == nil {
		i.network.close()
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		i.network.close()
	}()
	late := time.NewTimer(all.patience)
	defer late.Stop()
	select {
	case <-closed:
	case <-late.C:
		all.logger.Warn("connections of an instance have not ended yet; its sandbox ends without them", "instance", i.ID)
	case <-ctx.Done():
	}
}

// handOver empties the sandbox of an instance that has ended and keeps it for the tenant.
// It says whether that has worked: what cannot be emptied must be destroyed.
func (all *instances) handOver(ctx context.Context, i *instance) bool {
	// Who has asked for the end of the instance may not wait for this.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTimeout)
	defer cancel()
	if err := i.sandbox().guest.Reset(ctx); err != nil {
		all.logger.Info("a sandbox is not handed over but destroyed", "instance", i.ID, "reason", err)
		return false
	}
	all.from.Keep(i.Labels[sdk.LabelTenant], i.kind, i.sandbox())
	return true
}

// close ends all instances; none is added any more.
func (all *instances) close(ctx context.Context) error {
	all.mu.Lock()
	all.closed = true
	ending := slices.Collect(maps.Values(all.byID))
	for _, i := range ending {
		all.forget(i)
	}
	all.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(ending))
	for n, i := range ending {
		wg.Go(func() { errs[n] = all.end(ctx, i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
