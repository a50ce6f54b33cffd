package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// MaxForks is how many copies one request may ask for.
	MaxForks = 64
	// parallelForks bounds how many are made at once.
	parallelForks = 8
	// settleTimeout is how long who asks again after a restart waits until it is known which
	// copies there are.
	settleTimeout = 10 * time.Second
	// forkLife is how long the snapshot behind a fork stays beyond the wait of its copies, if
	// nobody is left to delete it.
	forkLife = 10 * time.Minute
)

// ForkRequest asks for copies of an instance that go on where it stands.
type ForkRequest struct {
	// Count of the copies.
	Count int
	// Sessions of the copies, one for each; none for sessions of the service's own making.
	Sessions []string
	// Env is added to the environment of the original, for what starts in the copies.
	Env map[string]string
	// Labels, TTL, Idle and Wait are as in a request for an instance.
	Labels    map[string]string
	TTL, Idle time.Duration
	Wait      time.Duration
	// Key is the caller's own name for this request; empty for none. Who asks again with it
	// gets the same copies.
	Key string
	// FrontDoor names the front door that asks; empty for the broker's own API. Fixed,
	// PauseAtEnd and Note are for front doors, as in a request for an instance.
	FrontDoor         string
	Fixed, PauseAtEnd bool
	Note              string
}

func (req ForkRequest) check() error {
	if req.Count < 1 || req.Count > MaxForks {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "count", "must be from 1 to %d", MaxForks)
	}
	if len(req.Sessions) != 0 && len(req.Sessions) != req.Count {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "session_ids", "must have one for each of the %d copies, or be left out", req.Count)
	}
	seen := map[string]bool{}
	for _, session := range req.Sessions {
		if session == "" || seen[session] {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "session_ids", "must not be empty, and each another one")
		}
		seen[session] = true
	}
	return nil
}

// session is that of a copy; empty for one of the service's making.
func (req ForkRequest) session(i int) string {
	switch {
	case len(req.Sessions) > 0:
		return req.Sessions[i]
	case req.Key != "":
		return instance.SessionOfKey(fmt.Sprintf("%s fork %d", req.Key, i))
	default:
		return ""
	}
}

// Fork makes copies of an instance of the tenant that go on where it stands, each in a
// session of its own, from one snapshot, which is deleted afterwards. It makes all of them, or
// none: when one cannot be made, those that were are ended, and so they are by the next
// process when this one dies in between (Forsaken). The original runs on. Errors are those of
// Make and of a creation.
func (s *Service) Fork(ctx context.Context, who tenant.Tenant, instanceID string, req ForkRequest) ([]instance.Info, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	if req.Key != "" {
		// Who asks again meanwhile would end what the first one makes.
		done, err := s.forking.Take(ctx, forkMark(who.Name, instanceID, req.Key))
		if err != nil {
			return nil, err
		}
		defer done()
	}
	if copies, err := s.forked(ctx, who, instanceID, req); err != nil || copies != nil {
		return copies, err
	}
	r, _, err := s.make(ctx, who, Record{
		ID: forkID(who.Name, instanceID, req.Key), Tenant: who.Name, Instance: instanceID, Transient: true, Expires: time.Now().Add(forkLife).Add(req.Wait),
	})
	if err != nil {
		return nil, err
	}
	copies := make([]instance.Info, req.Count)
	made := make([]bool, req.Count)
	group, making := errgroup.WithContext(ctx)
	group.SetLimit(parallelForks)
	for i := range req.Count {
		group.Go(func() (err error) {
			copies[i], made[i], err = s.fork(making, who, r, req, i)
			return err
		})
	}
	err = group.Wait()
	if err == nil {
		err = s.complete(r)
	}
	if err != nil {
		if s.undo(context.WithoutCancel(ctx), who, copies, made) {
			s.endTransient(ctx, r.ID)
		}
		return nil, err
	}
	failpoint.Hit(failpoint.ForkNoted)
	s.endTransient(ctx, r.ID)
	return copies, nil
}

// complete writes down that all copies are made, before anybody is told: from then on they
// stay, whatever becomes of this process.
func (s *Service) complete(r Record) error {
	failpoint.Hit(failpoint.ForkMade)
	ctx, cancel := s.noting()
	defer cancel()
	r.Forked = true
	if err := s.journal.Write(ctx, r); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[r.ID]; e != nil {
		e.Forked = true
	}
	return nil
}

// Forsaken says, of what the processes before this one wrote, which copies belong to forks
// whose others were not all made when they ended. Nobody was told of these copies, and nobody
// will be: who asks again, with the same key too, gets others, which are all of one moment.
// The caller has them ended before anybody can ask, and before the service that gets the
// records begins, which ends these.
func Forsaken(past []Record) func(fork string) bool {
	forsaken := map[string]bool{}
	for _, r := range past {
		forsaken[r.ID] = r.Transient && !r.Forked
	}
	return func(fork string) bool { return forsaken[fork] }
}

// forked returns the copies that an earlier request with the same key has made, all of them;
// nil for none. It ends what is there of them if that is not all, since its owner has ended
// the others: those that are made now are of another moment.
func (s *Service) forked(ctx context.Context, who tenant.Tenant, instanceID string, req ForkRequest) ([]instance.Info, error) {
	if req.Key == "" {
		return nil, nil
	}
	var copies []instance.Info
	mark := forkMark(who.Name, instanceID, req.Key)
	for i := range req.Count {
		waiting, cancel := context.WithTimeout(ctx, settleTimeout)
		unknown := s.instances.Settled(waiting, who, req.session(i), "")
		cancel()
		if len(unknown) > 0 {
			unclear := sdk.Errorf(sdk.CodeUnavailable, "the broker was restarted, and a provider has not said yet which copies there are")
			unclear.RetryAfter = time.Second
			return nil, unclear
		}
		for _, one := range s.instances.List(who, instance.ListRequest{Session: req.session(i), Limit: MaxForks}).Instances {
			if strings.HasPrefix(one.Fork, mark) {
				copies = append(copies, one)
			}
		}
	}
	if len(copies) == req.Count && !slices.ContainsFunc(copies, func(one instance.Info) bool { return one.Fork != copies[0].Fork }) {
		return copies, nil
	}
	for _, one := range copies {
		if err := s.instances.Destroy(ctx, who, one.ID.String()); err != nil && sdk.CodeOf(err) != sdk.CodeNotFound {
			return nil, err
		}
	}
	return nil, nil
}

// fork makes one copy. made says that there is one.
func (s *Service) fork(ctx context.Context, who tenant.Tenant, r Record, req ForkRequest, i int) (info instance.Info, made bool, err error) {
	if err := ctx.Err(); err != nil {
		return info, false, err // another one could not be made
	}
	create := instance.CreateRequest{
		Session: req.session(i), Env: maps.Clone(req.Env), Labels: req.Labels, TTL: req.TTL, Idle: req.Idle, Wait: req.Wait, FrontDoor: req.FrontDoor,
		Fixed: req.Fixed, PauseAtEnd: req.PauseAtEnd, Note: req.Note,
	}
	if err := s.source(r, r.Instance, &create); err != nil {
		return info, false, err
	}
	create.Snapshot.Fork = true
	info, created, err := s.instances.Create(ctx, who, create)
	if err == nil && !created {
		return instance.Info{}, false, sdk.FieldErrorf(sdk.CodeConflict, "session_ids", "the session %q already has an instance", create.Session)
	}
	return info, err == nil, err
}

// undo ends the copies that were made where others could not be. It reports whether all are
// out of use: where they are not, since the broker stops, the record of the fork stays, by
// which the next process ends them.
func (s *Service) undo(ctx context.Context, who tenant.Tenant, copies []instance.Info, made []bool) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	var inUse atomic.Bool
	group := errgroup.Group{}
	group.SetLimit(parallelForks)
	for i, info := range copies {
		if !made[i] {
			continue
		}
		group.Go(func() error {
			if err := s.instances.Destroy(ctx, who, info.ID.String()); err != nil && sdk.CodeOf(err) != sdk.CodeNotFound {
				// If it is out of use by then, the service that has it tries again.
				s.logger.Warn("a copy of a fork that failed could not be destroyed yet", "instance", info.ID.String(), "error", err)
				if _, err := s.instances.Get(ctx, who, info.ID.String()); err == nil {
					inUse.Store(true)
				}
			}
			return nil
		})
	}
	_ = group.Wait()
	return !inUse.Load()
}

// endTransient deletes the snapshot behind a fork, in the background: nobody waits for that.
func (s *Service) endTransient(ctx context.Context, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil || e.ending {
		return
	}
	e.Ending, e.ending = true, true
	ctx = context.WithoutCancel(ctx)
	s.tasks.Go("delete the snapshot of a fork", func() {
		_ = s.finish(ctx, e) // it has logged it, and it is tried again
	})
}
