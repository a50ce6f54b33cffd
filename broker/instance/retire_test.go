package instance_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// changing is a catalog whose one provider can be replaced.
type changing struct {
	mu  sync.Mutex
	now instance.Provider
}

func (c *changing) Offer(who tenant.Tenant) instance.Offer {
	return instance.Offer{Providers: c.Providers(), Active: "p", Tenant: who}
}

func (c *changing) Providers() []instance.Provider {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []instance.Provider{c.now}
}

func (c *changing) change(p instance.Provider) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = p
}

// inUpgrade runs a test with two providers of one label, the older one in the
// catalog.
func inUpgrade(t *testing.T, test func(t *testing.T, s *instance.Service, c *changing, older, newer *instancetest.Provider)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		older, newer := &instancetest.Provider{Name: "p"}, &instancetest.Provider{Name: "p"}
		c := &changing{now: older}
		s := instance.NewService(instance.Options{Catalog: c, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
		defer s.Shutdown(t.Context())
		test(t, s, c, older, newer)
	})
}

func TestAnUpgradeLeavesSessionsWhereTheyAre(t *testing.T) {
	inUpgrade(t, func(t *testing.T, s *instance.Service, c *changing, older, newer *instancetest.Provider) {
		kept, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "kept"})
		assert.NilError(t, err)
		c.change(newer)
		empty := s.Retire(older)

		for _, provider := range []string{"", "p"} {
			again, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "kept", Provider: provider})
			assert.NilError(t, err)
			assert.Check(t, !created)
			assert.Equal(t, again.ID, kept.ID)
		}
		in := run("python")
		in.Session = "kept"
		execution, err := s.Run(t.Context(), acme, in)
		assert.NilError(t, err)
		assert.Equal(t, execution.InstanceID, kept.ID.String())
		assert.Check(t, cmp.Len(older.Executions(), 1))
		_, err = s.Execute(t.Context(), acme, kept.ID.String(), run("python").ExecuteRequest)
		assert.NilError(t, err)
		assert.Check(t, cmp.Len(older.Executions(), 2))

		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "another"})
		assert.NilError(t, err)
		assert.Check(t, cmp.Len(newer.Live(), 1), "new work goes to the new one")
		select {
		case <-empty:
			t.Fatal("there is an instance on the old one still")
		default:
		}
		assert.Equal(t, s.Instances(older), 1)
		assert.NilError(t, s.Destroy(t.Context(), acme, kept.ID.String()))
		<-empty
		assert.Check(t, cmp.Len(older.Live(), 0))

		moved, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "kept"})
		assert.NilError(t, err)
		assert.Check(t, created)
		assert.Check(t, moved.ID != kept.ID)
		assert.Check(t, cmp.Len(newer.Live(), 2))
	})
}

func TestNothingIsMadeOnAProviderThatWasReplacedMeanwhile(t *testing.T) {
	inUpgrade(t, func(t *testing.T, s *instance.Service, c *changing, older, newer *instancetest.Provider) {
		waiting, ready := make(chan struct{}), make(chan struct{})
		var first sync.Once
		older.OnWait = func(context.Context) error {
			first.Do(func() { close(waiting); <-ready })
			return nil
		}
		done := make(chan error)
		go func() {
			_, err := s.Run(t.Context(), acme, run("python"))
			done <- err
		}()
		<-waiting
		c.change(newer)
		<-s.Retire(older) // at once: there is nothing on it
		close(ready)
		assert.NilError(t, <-done)
		assert.Check(t, cmp.Len(older.Executions(), 0))
		assert.Check(t, cmp.Len(newer.Executions(), 1))
	})
}

func TestACreationThatIsUnderWayStaysWhereItIs(t *testing.T) {
	inUpgrade(t, func(t *testing.T, s *instance.Service, c *changing, older, newer *instancetest.Provider) {
		making, made := make(chan struct{}), make(chan struct{})
		older.OnCreate = func(context.Context, sdk.CreateRequest) error {
			close(making)
			<-made
			return nil
		}
		type outcome struct {
			id  instance.ID
			err error
		}
		answers := make(chan outcome)
		create := func() {
			info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
			answers <- outcome{info.ID, err}
		}
		go create()
		<-making
		c.change(newer)
		empty := s.Retire(older)
		go create() // waits for the same instance
		synctest.Wait()
		close(made)
		one, two := <-answers, <-answers
		assert.NilError(t, one.err)
		assert.NilError(t, two.err)
		assert.Equal(t, one.id, two.id)
		assert.Check(t, cmp.Len(newer.Live(), 0))
		assert.NilError(t, s.Destroy(t.Context(), acme, one.id.String()))
		<-empty
	})
}

func TestReconcileTellsTwoProvidersOfOneLabelApart(t *testing.T) {
	inUpgrade(t, func(t *testing.T, s *instance.Service, c *changing, older, newer *instancetest.Provider) {
		old, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "old"})
		assert.NilError(t, err)
		onOld := older.Live()[0]
		newServed, err := newer.Provider(t.Context())
		assert.NilError(t, err)

		// Processes on this machine know their own instances only.
		assert.NilError(t, s.Reconcile(t.Context(), newer, newServed))
		_, err = s.Get(t.Context(), acme, old.ID.String())
		assert.NilError(t, err, "what is not the new one's is not lost")

		// One account in a cloud: the new process lists what the old one made.
		newer.Adopt(sdk.Instance{ID: onOld, Labels: map[string]string{sdk.LabelInstance: old.ID.Instance}})
		assert.NilError(t, s.Reconcile(t.Context(), newer, newServed))
		assert.Check(t, cmp.Len(newer.Live(), 1), "it is no orphan")

		// The old process has died; the new one lists what it left, or does not.
		assert.NilError(t, s.Reconcile(t.Context(), older, newServed))
		_, err = s.Get(t.Context(), acme, old.ID.String())
		assert.NilError(t, err)
		newer.Forget()
		c.change(newer)
		empty := s.Retire(older)
		assert.NilError(t, s.Reconcile(t.Context(), older, newServed))
		_, err = s.Get(t.Context(), acme, old.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
		<-empty
	})
}
