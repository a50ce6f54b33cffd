package provider

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/records"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// account is a service in which looking at a sandbox takes a while.
type account struct {
	controlPlane
	listed []agentrun.Sandbox

	mu        sync.Mutex
	now, most int
	asks      map[string]int
	gone      map[string]bool
}

func (a *account) ListSandboxes(context.Context, string) (agentrun.SandboxPage, error) {
	return agentrun.SandboxPage{Items: a.listed}, nil
}

// looks is the data plane of an account.
type looks struct {
	dataPlane
	*account
	takes time.Duration
}

func (l looks) GetSandbox(ctx context.Context, id string) (agentrun.Sandbox, error) {
	l.mu.Lock()
	l.now++
	l.most = max(l.most, l.now)
	l.asks[id]++
	gone := l.gone[id]
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.now--
		l.mu.Unlock()
	}()
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return agentrun.Sandbox{}, ctx.Err()
	}
	if gone {
		return agentrun.Sandbox{}, &agentrun.Failure{Status: 404, Code: agentrun.NotFound}
	}
	return agentrun.Sandbox{SandboxID: id, Status: agentrun.StatusReady}, nil
}

// many makes a provider of an account with a thousand sandboxes, which has records of them
// all. Of the first one is known that it is gone.
func many(t *testing.T, takes time.Duration) (*Provider, *account, []string) {
	t.Helper()
	a := &account{asks: map[string]int{}, gone: map[string]bool{}}
	p := New(hclog.NewNullLogger()).(*Provider)
	p.brokerID, p.owner = "broker", ownerOf("broker", "aliyun")
	p.control, p.data = a, looks{account: a, takes: takes}
	var err error
	p.records, err = records.Open[record]("instances", t.TempDir(), nil)
	assert.NilError(t, err)
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = p.nameOf(fmt.Sprint(i), 0)
		assert.NilError(t, p.records.Put(ids[i], record{ID: ids[i], Workspace: "/workspace", ExpiresAt: time.Now().Add(time.Hour)}))
	}
	a.gone[ids[0]] = true
	return p, a, ids
}

func ready(ids []string) []agentrun.Sandbox {
	all := make([]agentrun.Sandbox, len(ids))
	for i, id := range ids {
		all[i] = agentrun.Sandbox{SandboxID: id, Status: agentrun.StatusReady}
	}
	return all
}

// listing is what List says within the time that the broker gives it.
func listing(t *testing.T, p *Provider) (map[string]bool, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	all, err := p.List(ctx)
	if err == nil {
		assert.NilError(t, ctx.Err(), "the time was over before the list was there")
	}
	found := map[string]bool{}
	for _, one := range all {
		found[one.ID] = true
	}
	assert.Equal(t, len(found), len(all), "each is named once")
	return found, err
}

func TestSandboxesAreLookedAtSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a, ids := many(t, 500*time.Millisecond)
		a.listed = ready(ids)
		found, err := listing(t, p)
		assert.NilError(t, err)
		assert.Equal(t, len(found), 999)
		assert.Check(t, !found[ids[0]])
		assert.Equal(t, len(a.asks), 1000, "each was asked for")
		assert.Equal(t, a.most, parallelLooks)
	})
}

// What the service's list has is there for all that is known: nobody has to wait until
// each was looked at.
func TestAServiceThatIsSlowHasAListAllTheSame(t *testing.T) {
	for name, takes := range map[string]time.Duration{"slow": 3 * time.Second, "silent": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, a, ids := many(t, takes)
				a.listed = ready(ids)
				found, err := listing(t, p)
				assert.NilError(t, err)
				for _, id := range ids[1:] {
					assert.Check(t, found[id], "%s", id)
				}
				assert.Equal(t, found[ids[0]], takes == time.Hour, "what is known to be gone is left out")
				assert.Equal(t, a.most, parallelLooks)
			})
		})
	}
}

// Sandboxes that only a record tells of come first: without an answer there is no list.
func TestSandboxesThatTheListLacksAreLookedAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a, ids := many(t, 3*time.Second)
		a.listed = ready(ids[:900])
		found, err := listing(t, p)
		assert.NilError(t, err)
		assert.Check(t, len(found) >= 999)
		for _, id := range ids[900:] {
			assert.Check(t, found[id] && a.asks[id] == 1)
		}
	})
}

func TestAListThatCannotBeWholeIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a, ids := many(t, 2900*time.Millisecond)
		for _, id := range ids[:800] {
			a.gone[id] = true
		}
		calls := 1
		found, err := listing(t, p)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "1000 looks of 2.9 s do not fit into 30 s")
		for err != nil {
			assert.Equal(t, len(found), 0)
			assert.Assert(t, calls < 10, "what was found out is not kept")
			calls++
			found, err = listing(t, p)
		}
		assert.Equal(t, len(found), 200)
		asks := 0
		for _, id := range ids[:800] {
			asks += a.asks[id]
		}
		assert.Check(t, asks <= 800+calls*parallelLooks, "%d looks in %d lists: only those that a list cuts off are made again", asks, calls)
	})
}

func TestAListThatNobodyWaitsForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, a, ids := many(t, time.Hour)
		a.listed = ready(ids)
		ctx, cancel := context.WithCancel(t.Context())
		type answer struct {
			all []sdk.Instance
			err error
		}
		done := make(chan answer, 1)
		go func() {
			all, err := p.List(ctx)
			done <- answer{all, err}
		}()
		synctest.Wait()
		assert.Equal(t, a.now, parallelLooks)
		cancel()
		got := <-done
		assert.ErrorIs(t, got.err, context.Canceled)
		assert.Equal(t, len(got.all), 0)
		synctest.Wait()
		assert.Equal(t, a.now, 0)
		assert.Equal(t, len(a.asks), parallelLooks, "nothing more was asked for")
	})
}
