package instance_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// account is a cloud that never changes whose ID an instance carries.
type account struct {
	*instancetest.Provider

	mu       sync.Mutex
	adopted  map[string]string // whose ID it carries, by the instance
	asked    int
	released []string
	fails    error
	// listing, if not nil, is called while it lists, with what it has read already.
	listing func()
}

func newAccount() *account {
	return &account{adopted: map[string]string{}, Provider: &instancetest.Provider{
		Name: "cloud", Cloud: true, Capabilities: []sdk.Capability{sdk.CapabilityAdoption},
	}}
}

func (a *account) serving(ctx context.Context) (sdk.Provider, error) {
	p, err := a.Provider.Provider(ctx)
	if err != nil {
		return nil, err
	}
	return adopting{p.(*instancetest.Served), a}, nil
}

// inCatalog is the account as a provider.
type inCatalog struct{ *account }

func (c inCatalog) Provider(ctx context.Context) (sdk.Provider, error) { return c.serving(ctx) }

// adopting is its other face.
type adopting struct {
	*instancetest.Served
	account *account
}

func (a adopting) ListOf(context.Context, string) ([]sdk.Instance, error) { return nil, nil }

func (a adopting) Adopt(_ context.Context, id, broker string) error {
	a.account.mu.Lock()
	defer a.account.mu.Unlock()
	a.account.asked++
	if a.account.fails == nil {
		a.account.adopted[id] = broker
	}
	return a.account.fails
}

func (a adopting) Release(_ context.Context, id string) error {
	a.account.mu.Lock()
	defer a.account.mu.Unlock()
	a.account.released = append(a.account.released, id)
	return nil
}

func (a adopting) List(ctx context.Context) (own []sdk.Instance, err error) {
	all, err := a.Served.List(ctx)
	a.account.mu.Lock()
	for _, i := range all {
		if carries := i.Labels[sdk.LabelBroker]; carries == brokerID || a.account.adopted[i.ID] == carries {
			own = append(own, i)
		}
	}
	listing := a.account.listing
	a.account.mu.Unlock()
	if listing != nil {
		listing()
	}
	return own, err
}

func (a *account) failing(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = err
}

// holders is what other brokers have, and of what this one has records.
type holders struct {
	names, own []string
	fails      error
}

func (o *holders) HeldInstances(_ context.Context, _ string, names map[string]string) (others, own map[string]bool, err error) {
	others, own = map[string]bool{}, map[string]bool{}
	for id, name := range names {
		if slices.Contains(o.names, name) {
			others[id] = true
		}
		if slices.Contains(o.own, name) {
			own[id] = true
		}
	}
	return others, own, o.fails
}

func withAccount(t *testing.T, a *account, o *holders, past ...instance.Record) *instance.Service {
	t.Helper()
	return instance.NewService(instance.Options{
		Catalog: instancetest.Catalog{inCatalog{a}}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		Journal: &memory{}, BrokerID: brokerID, Holders: o, Past: instance.Past{Records: past},
	})
}

const (
	oneName   = "aaaaaaaaaaaaaaaaaaaa"
	otherName = "bbbbbbbbbbbbbbbbbbbb"
)

// long is the record of an instance that a dead broker has made a while ago.
func long() instance.Record {
	return made(oneName, func(r *instance.Record) { r.Created, r.Carries = time.Now().Add(-30*time.Minute), "dead" })
}

func TestWhatWasAnotherBrokersGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount()
		in(a.Provider, oneName, "dead")
		in(a.Provider, otherName, "dead") // and is nobody's of whom this one knows
		s := withAccount(t, a, &holders{})
		defer s.Shutdown(context.Background())
		r := long()
		_, err := s.Get(t.Context(), acme, r.ID.String())
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
		successor := instance.SuccessorOf(s)
		successor.TakeOver([]instance.Record{r})
		successor.TakeOver([]instance.Record{r}) // as after a transaction whose outcome was not known
		synctest.Wait()
		info, err := s.Get(t.Context(), acme, r.ID.String())
		assert.NilError(t, err)
		assert.Check(t, is.Equal(info.ExpiresAt.Unix(), r.Expires.Unix()))
		same, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assert.NilError(t, err)
		assert.Check(t, is.Equal(same.ID, r.ID))
		assert.Check(t, is.Equal(a.asked, 1))

		// The next process of the plugin is told again, and that one once.
		a.mu.Lock()
		a.adopted = map[string]string{}
		a.mu.Unlock()
		ready, err := a.serving(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), inCatalog{a}, ready))
		_, err = s.Get(t.Context(), acme, r.ID.String())
		assert.NilError(t, err)
		time.Sleep(5 * time.Minute / 2)
		synctest.Wait()
		assert.Check(t, is.Equal(a.asked, 2))
		assert.Check(t, is.Len(a.Live(), 2))
	})
}

// A plugin that cannot be told of an instance does not list it, which proves nothing.
func TestAnInstanceThatAPluginWasNotToldOfIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount()
		in(a.Provider, oneName, "dead")
		a.failing(errors.New("the service is away"))
		s := withAccount(t, a, &holders{}, long()) // as after a restart
		defer s.Shutdown(context.Background())
		ready, err := a.serving(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), inCatalog{a}, ready))
		_, err = s.Get(t.Context(), acme, long().ID.String())
		assertWaits(t, err)
		a.failing(nil)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		_, err = s.Get(t.Context(), acme, long().ID.String())
		assert.NilError(t, err)

		// It lives, and the next process cannot be told of it.
		a.mu.Lock()
		a.adopted, a.fails = map[string]string{}, errors.New("the service is away")
		a.mu.Unlock()
		assert.NilError(t, s.Reconcile(t.Context(), inCatalog{a}, ready))
		_, err = s.Get(t.Context(), acme, long().ID.String())
		assert.NilError(t, err)

		a.failing(sdk.Errorf(sdk.CodeNotFound, "no such instance"))
		assert.NilError(t, s.Reconcile(t.Context(), inCatalog{a}, ready))
		_, err = s.Get(t.Context(), acme, long().ID.String())
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
	})
}

// A list that was made before an instance became this broker's does not have it.
func TestAListFromBeforeProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount()
		in(a.Provider, oneName, "dead")
		s := withAccount(t, a, &holders{})
		defer s.Shutdown(context.Background())
		goOn, went := make(chan struct{}), false
		a.listing = func() {
			if !went {
				went = true
				<-goOn
			}
		}
		ready, err := a.serving(t.Context())
		assert.NilError(t, err)
		var late sync.WaitGroup
		late.Go(func() { assert.Check(t, s.Reconcile(t.Context(), inCatalog{a}, ready)) })
		synctest.Wait()
		a.Down = "not ready" // so that nothing is asked until then
		time.Sleep(time.Second)
		instance.SuccessorOf(s).TakeOver([]instance.Record{long()})
		close(goOn)
		late.Wait()
		_, err = s.Get(t.Context(), acme, long().ID.String())
		assertWaits(t, err)
	})
}

func TestWhatOthersHaveIsDestroyedByNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount()
		in(a.Provider, oneName, brokerID)
		in(a.Provider, otherName, brokerID)
		o := &holders{names: []string{oneName}, fails: errors.New("the database is away")}
		s := withAccount(t, a, o)
		defer s.Shutdown(context.Background())
		ready, err := a.serving(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), inCatalog{a}, ready))
		assert.Check(t, is.Len(a.Live(), 2), "nobody knows whose they are")
		assert.Check(t, is.Len(a.released, 0))
		o.fails = nil
		assert.NilError(t, s.Reconcile(t.Context(), inCatalog{a}, ready))
		assert.Check(t, is.DeepEqual(a.Live(), []string{"fake-" + oneName}))
		assert.Check(t, is.DeepEqual(a.released, []string{"fake-" + oneName}))
	})
}

// The database knows of an adoption before the registry does.
func TestWhatIsBeingAdoptedIsNoOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount()
		in(a.Provider, oneName, brokerID)   // which this broker has made, and gets back
		in(a.Provider, otherName, brokerID) // and one of which nobody knows
		o := &holders{own: []string{oneName}}
		s := withAccount(t, a, o)
		defer s.Shutdown(context.Background())
		ready, err := a.serving(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), inCatalog{a}, ready))
		assert.Check(t, is.DeepEqual(a.Live(), []string{"fake-" + oneName}))
		assert.Check(t, is.Len(a.released, 0))
		r := long()
		r.Carries = ""
		instance.SuccessorOf(s).TakeOver([]instance.Record{r})
		synctest.Wait()
		_, err = s.Get(t.Context(), acme, r.ID.String())
		assert.NilError(t, err)
	})
}
