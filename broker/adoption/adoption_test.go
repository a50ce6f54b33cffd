package adoption_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/adoption"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cloud is a provider that knows what brokers have at a service.
type cloud struct {
	sdk.Provider
	sdk.Adopter
	label        string
	capabilities []sdk.Capability

	mu       sync.Mutex
	down     bool
	carrying map[string][]string
	fails    error
	lists    int
	hangs    chan struct{} // until closed, a list does
}

// change changes it while it is asked.
func (c *cloud) change(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cloud) Label() string  { return c.label }
func (c *cloud) Plugin() string { return "cloud" }
func (c *cloud) Description() sdk.Description {
	return sdk.Description{Name: "cloud", Capabilities: c.capabilities}
}

func (c *cloud) Status() instance.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return instance.Status{Ready: !c.down}
}

// reached is the cloud as a plugin.
type reached struct{ *cloud }

func (c *cloud) ready() sdk.Provider { return reached{c} }

func (r reached) Describe() sdk.Description { return r.Description() }
func (r reached) ListOf(_ context.Context, broker string) (all []sdk.Instance, err error) {
	r.mu.Lock()
	r.lists++
	hangs := r.hangs
	r.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.carrying[broker] {
		all = append(all, sdk.Instance{ID: id})
	}
	return all, r.fails
}

// provider is the cloud in a catalog.
type provider struct{ *cloud }

func (p provider) Provider(context.Context) (sdk.Provider, error) { return p.ready(), nil }

// directory has what dead brokers had.
type directory struct {
	mu      sync.Mutex
	had     map[string][]postgres.Forsaken
	adopted []postgres.Forsaken
	lost    bool // the answer to the next adoption
	away    bool // for who asks what was adopted
	asked   int  // how often it was
	dead    int  // how often it was asked who is
	most    int  // sessions that were adopted at once
}

func (d *directory) Dead(context.Context) (map[string]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead++
	deaths := map[string]int64{}
	for id := range d.had {
		deaths[id] = 1
	}
	return deaths, nil
}

func (d *directory) DeadOwner(_ context.Context, what peer.Sought) (map[string]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, had := range d.had {
		for _, f := range had {
			if strings.HasPrefix(f.ID, what.Session+":") && what.Session != "" || f.ID == what.Instance || what.Name != "" && strings.HasSuffix(f.ID, ":"+what.Name) {
				return map[string]int64{id: 1}, nil
			}
		}
	}
	return nil, nil
}

func (d *directory) ForsakenOf(_ context.Context, dead string, what peer.Sought) (all []postgres.Forsaken, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sessions := map[string]bool{}
	for _, f := range d.had[dead] {
		if what == (peer.Sought{}) || f.ID == what.Instance || what.Session != "" && sessionOf(f) == what.Session || what.Name != "" && strings.HasSuffix(f.ID, ":"+what.Name) {
			sessions[sessionOf(f)] = true
		}
	}
	for _, f := range d.had[dead] {
		if sessions[sessionOf(f)] {
			all = append(all, f)
		}
	}
	return all, nil
}

func sessionOf(f postgres.Forsaken) string { return f.ID[:strings.LastIndexByte(f.ID, ':')] }

func (d *directory) Adopt(_ context.Context, dead string, from []postgres.Forsaken) (records [][]byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sessions := map[string]bool{}
	for _, f := range from {
		sessions[sessionOf(f)] = true
	}
	d.most = max(d.most, len(sessions))
	var left []postgres.Forsaken
	for _, f := range d.had[dead] {
		taken := false
		for _, one := range from {
			if one.ID == f.ID {
				d.adopted, taken = append(d.adopted, one), true
				records = append(records, recordOf(one))
			}
		}
		if !taken && !sessions[sessionOf(f)] {
			left = append(left, f)
		}
	}
	d.had[dead] = left
	if d.lost {
		d.lost = false
		return nil, errors.New("the connection was lost")
	}
	return records, nil
}

func (d *directory) Adopted(context.Context) (records [][]byte, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.away {
		return nil, errors.New("the database is away")
	}
	for _, f := range d.adopted {
		records = append(records, recordOf(f))
	}
	return records, nil
}

func recordOf(f postgres.Forsaken) []byte {
	parts := strings.Split(f.ID, ":")
	text, _ := json.Marshal(instance.Record{ID: instance.ID{Tenant: parts[0], Session: parts[1], Instance: parts[2]}, Provider: f.Provider, Made: f.Made, Carries: f.Carries})
	return text
}

// heirs remember what they were given.
type heirs struct {
	mu       sync.Mutex
	got      map[string]string // what each carries, by ID
	draining atomic.Bool
}

func (h *heirs) TakeOver(records []instance.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range records {
		h.got[r.ID.String()] = r.Carries
	}
}
func (h *heirs) Draining() bool { return h.draining.Load() }

func (h *heirs) have() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]string{}
	for id, carries := range h.got {
		all[id] = carries
	}
	return all
}

func begin(t *testing.T, d *directory, i *heirs, clouds ...*cloud) *adoption.Heir {
	t.Helper()
	var all []instance.Provider
	for _, c := range clouds {
		all = append(all, provider{c})
	}
	h := adoption.New(adoption.Options{
		Directory: d, Providers: func() []instance.Provider { return all },
		Known: func(tenant string) bool { return tenant == "acme" }, Logger: hclog.NewNullLogger(),
	})
	here, err := h.Inherit(t.Context(), peer.Sought{Instance: "acme:s:1"})
	assert.Check(t, err == nil || errors.Is(err, peer.ErrAwaited))
	assert.Check(t, !here, "it has not begun yet")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Run(ctx, i)
	}()
	t.Cleanup(func() { end(); <-ended })
	synctest.Wait()
	return h
}

var adoptable = []sdk.Capability{sdk.CapabilityAdoption}

func TestWhatTheAccountHasIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {
			{ID: "acme:s:1", Provider: "cloud", Made: "x1"},
			{ID: "acme:s:2", Provider: "cloud", Made: "x2", Carries: "c"},
			{ID: "acme:t:1", Provider: "cloud", Made: "of another account"},
			{ID: "acme:u:1", Provider: "bound", Made: "x3"},
			{ID: "removed:s:1", Provider: "cloud", Made: "x4"},
		}}}
		c := &cloud{label: "cloud", capabilities: adoptable, carrying: map[string][]string{"a": {"x1", "x4", "stranger"}, "c": {"x2"}}}
		bound := &cloud{label: "bound", carrying: map[string][]string{"a": {"x3"}}}
		i := &heirs{got: map[string]string{}}
		begin(t, d, i, c, bound)
		time.Sleep(20 * time.Second) // others may have the account
		synctest.Wait()
		assert.Check(t, is.DeepEqual(i.have(), map[string]string{"acme:s:1": "a", "acme:s:2": "c"}))
		lists := c.lists
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Check(t, is.Equal(c.lists, lists), "who has nothing more is left alone for a while")
		c.change(func() { c.carrying["a"] = append(c.carrying["a"], "of another account") }) // the list was late
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Check(t, is.Equal(len(i.have()), 3))
		assert.Check(t, is.Equal(bound.lists, 0))
	})
}

func TestWhoAsksGetsItFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {
			{ID: "acme:s:1", Provider: "cloud", Made: "x1"},
			{ID: "acme:t:2", Provider: "cloud", Made: "x2"},
			{ID: "acme:u:3", Provider: "cloud", Made: "x3"},
			{ID: "acme:v:4", Provider: "unknown", Made: "x4"},
		}}}
		c := &cloud{label: "cloud", capabilities: adoptable, carrying: map[string][]string{"a": {"x1", "x2", "x3", "x4"}}}
		i := &heirs{got: map[string]string{}}
		h := begin(t, d, i, c)
		for _, what := range []peer.Sought{{Instance: "acme:s:1"}, {Name: "2"}, {Session: "acme:u"}} {
			before := len(i.have())
			here, err := h.Inherit(t.Context(), what)
			assert.NilError(t, err)
			assert.Check(t, here, "%+v", what)
			assert.Check(t, is.Equal(len(i.have()), before+1))
		}
		assert.Check(t, is.Equal(c.lists, 1), "one list is for all who ask at the same time")
		here, err := h.Inherit(t.Context(), peer.Sought{Instance: "acme:s:9"})
		assert.NilError(t, err)
		assert.Check(t, !here)

		// Others may have a provider that this one has not, until they have had the time.
		_, err = h.Inherit(t.Context(), peer.Sought{Instance: "acme:v:4"})
		assert.ErrorIs(t, err, peer.ErrAwaited)
		time.Sleep(20 * time.Second)
		here, err = h.Inherit(t.Context(), peer.Sought{Instance: "acme:v:4"})
		assert.NilError(t, err)
		assert.Check(t, !here)
	})
}

func TestWhatCannotBeDecidedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {{ID: "acme:s:1", Provider: "cloud", Made: "x1"}}}, lost: true}
		c := &cloud{label: "cloud", capabilities: adoptable, carrying: map[string][]string{"a": {"x1"}}, down: true}
		i := &heirs{got: map[string]string{}}
		h := begin(t, d, i, c)
		_, err := h.Inherit(t.Context(), peer.Sought{Instance: "acme:s:1"})
		assert.ErrorContains(t, err, "not ready")
		c.change(func() { c.fails, c.down = errors.New("the service is down"), false })
		_, err = h.Inherit(t.Context(), peer.Sought{Instance: "acme:s:1"})
		assert.ErrorContains(t, err, "the service is down")
		assert.Check(t, is.Equal(len(i.have()), 0))
		c.change(func() { c.fails = nil })
		// The transaction is done, and the answer to it is lost.
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Check(t, is.DeepEqual(i.have(), map[string]string{"acme:s:1": "a"}))

		i.draining.Store(true)
		asked := d.dead
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Check(t, is.Equal(d.dead, asked), "who ends takes over nothing")
	})
}

// A session is with one broker: it is adopted with all that it has.
func TestASessionIsAdoptedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {
			{ID: "acme:s:1", Provider: "cloud", Made: "x1"},
			{ID: "acme:s:2", Provider: "other", Made: "x2"},
			{ID: "acme:late:3", Provider: "cloud", Made: "x3"},
			{ID: "acme:late:4", Provider: "other", Made: "x4"},
			{ID: "acme:bound:5", Provider: "cloud", Made: "x5"},
			{ID: "acme:bound:6", Provider: "bound", Made: "x6"},
			{ID: "acme:gone:7", Provider: "cloud", Made: "x7"},
			{ID: "acme:gone:8", Provider: "other", Made: "x8"},
		}}}
		c := &cloud{label: "cloud", capabilities: adoptable, carrying: map[string][]string{"a": {"x1", "x3", "x5", "x7"}}}
		other := &cloud{label: "other", capabilities: adoptable, carrying: map[string][]string{"a": {"x2"}}, fails: errors.New("the service is down")}
		i := &heirs{got: map[string]string{}}
		h := begin(t, d, i, c, other, &cloud{label: "bound"})
		_, err := h.Inherit(t.Context(), peer.Sought{Instance: "acme:s:1"})
		assert.ErrorContains(t, err, "the service is down")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Check(t, is.DeepEqual(i.have(), map[string]string{"acme:bound:5": "a"}), "the rest cannot be decided")
		d.mu.Lock()
		d.had["b"], d.had["a"] = d.had["a"], nil // it has died again
		d.mu.Unlock()
		c.change(func() { c.carrying["b"] = c.carrying["a"] })
		other.change(func() { other.fails, other.carrying["b"] = nil, other.carrying["a"] })
		time.Sleep(3 * time.Second)
		here, err := h.Inherit(t.Context(), peer.Sought{Session: "acme:s"})
		synctest.Wait()
		assert.NilError(t, err)
		assert.Check(t, !here, "it is here already")
		assert.Check(t, is.DeepEqual(i.have(), map[string]string{"acme:bound:5": "a", "acme:s:1": "b", "acme:s:2": "b"}))
		_, err = h.Inherit(t.Context(), peer.Sought{Session: "acme:late"})
		assert.ErrorIs(t, err, peer.ErrAwaited)
		other.change(func() { other.carrying["b"] = append(other.carrying["b"], "x4") })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		assert.Check(t, is.Equal(len(i.have()), 5))
		time.Sleep(15 * time.Second) // nobody has had all of the last one
		synctest.Wait()
		assert.Check(t, is.Equal(i.have()["acme:gone:7"], "b"))
		assert.Check(t, is.Len(d.had["b"], 0))
	})
}

// Who does not adopt, or not yet, does not say of what others may adopt that it is gone.
func TestWhoEndsSaysThatOthersMayGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {
			{ID: "acme:t:1", Provider: "cloud", Made: "x1"}, {ID: "acme:u:2", Provider: "bound", Made: "x2"},
		}}}
		i := &heirs{got: map[string]string{}}
		i.draining.Store(true)
		h := begin(t, d, i, &cloud{label: "cloud", capabilities: adoptable}, &cloud{label: "bound"})
		_, err := h.Inherit(t.Context(), peer.Sought{Instance: "acme:t:1"})
		assert.ErrorIs(t, err, peer.ErrAwaited)
		here, err := h.Inherit(t.Context(), peer.Sought{Instance: "acme:u:2"})
		assert.NilError(t, err)
		assert.Check(t, !here)
		time.Sleep(20 * time.Second)
		_, err = h.Inherit(t.Context(), peer.Sought{Instance: "acme:t:1"})
		assert.NilError(t, err)
	})
}

// The database may be away for longer than a transaction is on its way.
func TestAnAdoptionWhoseAnswerIsLostIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {{ID: "acme:s:1", Provider: "cloud", Made: "x1"}}}, lost: true, away: true}
		c := &cloud{label: "cloud", capabilities: adoptable, carrying: map[string][]string{"a": {"x1"}}}
		i := &heirs{got: map[string]string{}}
		begin(t, d, i, c)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Check(t, is.Len(i.have(), 0))
		d.mu.Lock()
		d.away = false
		d.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Check(t, is.DeepEqual(i.have(), map[string]string{"acme:s:1": "a"}))
		asked := d.asked
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Check(t, is.Equal(d.asked, asked), "nothing is unclear any more")
	})
}

// Many sessions are adopted some at a time.
func TestManySessionsAreAdoptedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := &directory{had: map[string][]postgres.Forsaken{}}, &cloud{label: "cloud", capabilities: adoptable, carrying: map[string][]string{}}
		for n := range 1000 {
			id := strconv.Itoa(n)
			d.had["a"] = append(d.had["a"], postgres.Forsaken{ID: "acme:s" + id + ":" + id, Provider: "cloud", Made: id})
			c.carrying["a"] = append(c.carrying["a"], id)
		}
		i := &heirs{got: map[string]string{}}
		begin(t, d, i, c)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Check(t, is.Equal(len(i.have()), 1000))
		assert.Check(t, is.Equal(d.most, 64))
	})
}

// Nobody waits for a list longer than it may, and one that failed is not asked for by each.
func TestAListIsWaitedForAsLongAsTheCallMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {{ID: "acme:s:1", Provider: "cloud", Made: "x1"}}}}
		c := &cloud{label: "cloud", capabilities: adoptable, hangs: make(chan struct{}), fails: errors.New("the service is down")}
		i := &heirs{got: map[string]string{}}
		h := begin(t, d, i, c)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			began := time.Now()
			_, err := h.Inherit(ctx, peer.Sought{Instance: "acme:s:1"})
			cancel()
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Check(t, is.Equal(time.Since(began), 100*time.Millisecond))
		}
		close(c.hangs)
		synctest.Wait()
		for range 3 {
			_, err := h.Inherit(t.Context(), peer.Sought{Instance: "acme:s:1"})
			assert.ErrorContains(t, err, "the service is down")
		}
		assert.Check(t, is.Equal(c.lists, 1))
	})
}

// What no broker can adopt is looked for ever more seldom, and so is what a service does not tell.
func TestWhatNobodyCanAdoptIsLookedForMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{had: map[string][]postgres.Forsaken{"a": {{ID: "acme:s:1", Provider: "cloud", Made: "of another account"}}}}
		c := &cloud{label: "cloud", capabilities: adoptable}
		i := &heirs{got: map[string]string{}}
		begin(t, d, i, c)
		lists := func(in time.Duration) int {
			c.mu.Lock()
			before := c.lists
			c.mu.Unlock()
			time.Sleep(in)
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.lists - before
		}
		lists(10 * time.Minute)
		n := lists(time.Hour)
		assert.Check(t, n >= 11 && n <= 12, "%d", n)
		c.change(func() { c.fails = errors.New("the key was taken back") })
		lists(10 * time.Minute)
		n = lists(time.Minute)
		assert.Check(t, n >= 5 && n <= 6, "%d", n)
		c.change(func() { c.fails, c.carrying = nil, map[string][]string{"a": {"of another account"}} })
		time.Sleep(11 * time.Second)
		synctest.Wait()
		assert.Check(t, is.Len(i.have(), 1))
	})
}
