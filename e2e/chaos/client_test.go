package chaos_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
)

// clientsOfTenant is how many clients each tenant has.
const clientsOfTenant = 3

// retries is how often a client asks again for what may work later, and
// betweenTries how long it waits before.
const (
	retries      = 40
	betweenTries = 50 * time.Millisecond
)

// client is one program of a tenant.
type client struct {
	world  *world
	number int
	tenant string
	random *rand.Rand
	// seen are instances of all tenants.
	seen *sightings

	count int
	held  []string
}

// sightings are instances that clients were told of, for others to reach for.
type sightings struct {
	mu    sync.Mutex
	ids   []sighting
	known map[string]bool
	// unknown are those that were listed and nobody was told of, since when.
	unknown map[string]time.Time
}

type sighting struct{ tenant, id string }

func (s *sightings) add(tenant, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, sighting{tenant, id})
	s.known[id] = true
}

// nobodys returns those of a list that have been there for a while although no
// client was told: who asked for them has got no answer.
func (s *sightings) nobodys(list []string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range list {
		since, found := s.unknown[id]
		switch {
		case s.known[id]:
		case !found:
			s.unknown[id] = time.Now()
		case time.Since(since) > time.Second:
			ids = append(ids, id)
		}
	}
	return ids
}

// ofOthers draws one of the last.
func (s *sightings) ofOthers(tenant string, random *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 20 {
		if len(s.ids) == 0 {
			break
		}
		if found := s.ids[max(0, len(s.ids)-1-random.IntN(20))]; found.tenant != tenant {
			return found.id
		}
	}
	return ""
}

// crowd is all clients of a world.
type crowd struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// newClients makes those of a world.
func newClients(w *world, seed uint64) (all []*client) {
	seen := &sightings{known: map[string]bool{}, unknown: map[string]time.Time{}}
	for i := range len(tenants) * clientsOfTenant {
		all = append(all, &client{world: w, number: i, tenant: tenants[i%len(tenants)], random: newRandom(seed, uint64(1000+i)), seen: seen})
	}
	return all
}

// letLoose has the clients go on.
func (w *world) letLoose() *crowd {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{stop: cancel}
	for _, one := range w.clients {
		c.wg.Go(func() {
			for ctx.Err() == nil {
				one.act(ctx)
			}
		})
	}
	return c
}

// end lets the clients finish what they have begun.
func (c *crowd) end() {
	c.stop()
	c.wg.Wait()
}

// act does one thing.
func (c *client) act(ctx context.Context) {
	c.count++
	switch n := c.random.IntN(100); {
	case n < 25 && len(c.held) == 0:
		c.create(ctx)
	case n < 45 && len(c.held) > 0:
		c.execute(ctx)
	case n < 65:
		c.run(ctx)
	case n < 80 && len(c.held) > 0:
		c.destroy(ctx)
	case n < 85:
		c.list()
	case n < 90:
		c.one(event{Operation: opUsage}, http.MethodGet, "/api/v1/usage", nil)
	case n < 95:
		c.steal()
	default:
		pause(ctx, time.Duration(c.random.IntN(30))*time.Millisecond)
	}
}

// name is one that nobody has used before.
func (c *client) name(kind string) string { return fmt.Sprintf("%s-%d-%d", kind, c.number, c.count) }

func (c *client) key() string {
	if c.random.IntN(2) == 0 {
		return ""
	}
	return c.name("key")
}

func (c *client) create(ctx context.Context) {
	e := event{Operation: opCreate, Key: c.key()}
	body := map[string]any{}
	if c.random.IntN(3) == 0 {
		e.Session = fmt.Sprintf("s-%d-%d", c.number, c.random.IntN(3)) // again and again the same
		body["session_id"] = e.Session
	}
	if e.Key == "" && e.Session == "" && c.random.IntN(2) == 0 {
		body["wait_ms"] = 500
	}
	c.choose(&e, body)
	e.Patience = c.patience()
	c.keep(c.persist(ctx, e, "/api/v1/instances", body))
}

// keep takes down the instance that an answer names.
func (c *client) keep(e event) {
	if e.acknowledged() && e.Told != "" && !slices.Contains(c.held, e.Told) {
		c.held = append(c.held, e.Told)
		c.seen.add(c.tenant, e.Told)
	}
}

// code is a program with a token of its own.
func (c *client) code() (token string, code string) {
	token = c.name("token")
	text, _ := json.Marshal(cloud.Program{Token: token, MS: c.random.IntN(40)}) // strings and numbers
	return token, string(text)
}

func (c *client) execute(ctx context.Context) {
	id := c.held[c.random.IntN(len(c.held))]
	token, code := c.code()
	e := event{Operation: opExecute, Key: c.key(), Instance: id, Token: token}
	c.persist(ctx, e, "/api/v1/instances/"+id+"/execute", map[string]any{"language": "wait", "code": code})
}

func (c *client) run(ctx context.Context) {
	token, code := c.code()
	e := event{Operation: opRun, Key: c.key(), Token: token}
	body := map[string]any{"language": "wait", "code": code}
	c.choose(&e, body)
	if e = c.persist(ctx, e, "/api/v1/execute", body); e.Session != "" {
		c.keep(e)
	}
}

// destroy asks until the instance is gone.
func (c *client) destroy(ctx context.Context) {
	at := c.random.IntN(len(c.held))
	id := c.held[at]
	c.held = append(c.held[:at], c.held[at+1:]...)
	for range retries {
		e := c.one(event{Operation: opDestroy, Instance: id}, http.MethodDelete, "/api/v1/instances/"+id, nil)
		if e.acknowledged() || e.Status == http.StatusNotFound || ctx.Err() != nil {
			return
		}
		pause(ctx, betweenTries)
	}
}

func (c *client) list() {
	listed := c.one(event{Operation: opList}, http.MethodGet, "/api/v1/instances", nil)
	for _, id := range c.seen.nobodys(listed.List) {
		c.one(event{Operation: opDestroy, Instance: id}, http.MethodDelete, "/api/v1/instances/"+id, nil)
	}
	if len(c.held) > 0 {
		id := c.held[c.random.IntN(len(c.held))]
		c.one(event{Operation: opLook, Instance: id}, http.MethodGet, "/api/v1/instances/"+id, nil)
	}
}

// steal reaches for what belongs to somebody else.
func (c *client) steal() {
	id := c.seen.ofOthers(c.tenant, c.random)
	if id == "" {
		return
	}
	e := event{Operation: opSteal, Instance: id}
	switch c.random.IntN(3) {
	case 0:
		c.one(e, http.MethodGet, "/api/v1/instances/"+id, nil)
	case 1:
		c.one(e, http.MethodDelete, "/api/v1/instances/"+id, nil)
	default:
		_, code := c.code()
		c.one(e, http.MethodPost, "/api/v1/instances/"+id+"/execute", map[string]any{"language": "wait", "code": code})
	}
}

// persist sends a POST, and again as long as it has a key or a session and there was
// no clear answer.
func (c *client) persist(ctx context.Context, e event, path string, body map[string]any) event {
	for range retries {
		done := c.one(e, http.MethodPost, path, body)
		again := done.Error != "" || done.Status >= 500 || done.Status == http.StatusConflict
		if !again || e.Key == "" && (e.Session == "" || e.Operation != opCreate) || ctx.Err() != nil {
			if again {
				pause(ctx, betweenTries)
			}
			return done
		}
		if e.Operation != opCreate && done.Status == http.StatusServiceUnavailable && !retryable(done) {
			return done
		}
		pause(ctx, betweenTries)
		e.Patience = 0
	}
	return e
}

// retryable is false where the broker says that nobody knows what it has done: the
// same key will never give another answer.
func retryable(e event) bool {
	return e.Code == "" || !strings.Contains(e.Detail, "whether it had effects is unknown")
}

// one sends a request and writes down what became of it.
func (c *client) one(e event, method, path string, body any) event {
	e.Client, e.Tenant, e.Began = c.number, c.tenant, time.Now()
	a := c.world.askWithin(cmp.Or(e.Patience, askTimeout), method, path, c.tenant, body, e.Key)
	e.Ended, e.Status = time.Now(), a.Status
	if a.Err != nil {
		e.Error, e.Status = a.Err.Error(), 0
	}
	var told struct {
		ID         string `json:"id"`
		InstanceID string `json:"instance_id"`
		Code       string `json:"code"`
		Detail     string `json:"detail"`
		Instances  []struct {
			ID string `json:"id"`
		} `json:"instances"`
		Limits []struct {
			Name  string   `json:"name"`
			Used  float64  `json:"used"`
			Limit *float64 `json:"limit"`
		} `json:"limits"`
		Provider string `json:"provider"`
		Routing  struct {
			Reason   string `json:"reason"`
			PlacedBy string `json:"placed_by"`
			Tried    []struct {
				Code string `json:"code"`
			} `json:"tried"`
		} `json:"routing"`
	}
	if a.into(&told) {
		e.Told, e.Code, e.Detail = told.ID, told.Code, told.Detail
		e.Provider, e.Reason, e.PlacedBy = told.Provider, told.Routing.Reason, told.Routing.PlacedBy
		for _, t := range told.Routing.Tried {
			e.Tried = append(e.Tried, t.Code)
		}
		if e.Told == "" {
			e.Told = told.InstanceID
		}
		for _, i := range told.Instances {
			e.List = append(e.List, i.ID)
		}
		for _, l := range told.Limits {
			if l.Limit != nil && l.Used > *l.Limit {
				e.List = append(e.List, fmt.Sprintf("%s: %v of %v", l.Name, l.Used, *l.Limit))
			}
		}
	}
	c.world.history.add(e)
	return e
}
