package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// clientsOfTenant is how many clients each tenant has.
const clientsOfTenant = 3

// keepersOfTenant is how many each keeping tenant has, and firstKeeper the number of the first.
const (
	keepersOfTenant = 2
	firstKeeper     = 500
)

// retries is how often a client asks again for what may work later, and
// betweenTries how long it waits before.
const (
	retries      = 40
	betweenTries = 50 * time.Millisecond
)

// actor is a client of any kind: it does one thing after the other.
type actor interface{ act(ctx context.Context) }

// client is one program of a tenant. It speaks the broker's own API; those of front doors
// are made of it.
type client struct {
	world  *world
	number int
	tenant string
	random *rand.Rand
	// door is the front door that it speaks to; empty for the broker's own API.
	door string
	// seen are instances of all tenants.
	seen *sightings

	count int
	held  []string
}

// sightings are instances that clients were told of, for others to reach for.
type sightings struct {
	mu  sync.Mutex
	ids []sighting
	// known are those of all, by the last part of the ID, which is a door's name for it.
	known map[string]bool
	// unknown are those that were listed and nobody was told of, since when.
	unknown map[string]time.Time
}

type sighting struct{ tenant, door, id string }

func (s *sightings) add(tenant, door, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, sighting{tenant, door, id})
	s.known[lastPart(id)] = true
}

// nobodys returns those of a list that have been there for a while although no
// client was told: who asked for them has got no answer.
func (s *sightings) nobodys(list []string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range list {
		name := lastPart(id)
		since, found := s.unknown[name]
		switch {
		case s.known[name]:
		case !found:
			s.unknown[name] = time.Now()
		case time.Since(since) > time.Second:
			ids = append(ids, id)
		}
	}
	return ids
}

// ofOthers draws one of the last, as clients of a door name it.
func (s *sightings) ofOthers(tenant, door string, random *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 20 {
		if len(s.ids) == 0 {
			break
		}
		if found := s.ids[max(0, len(s.ids)-1-random.IntN(20))]; found.tenant != tenant {
			if door != "" {
				return lastPart(found.id)
			}
			if found.door == "" {
				return found.id
			}
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
func newClients(w *world, seed uint64, ofTenant int) (all []actor) {
	seen := &sightings{known: map[string]bool{}, unknown: map[string]time.Time{}}
	next := func(door string) *client {
		i := len(all)
		return &client{world: w, number: i, tenant: tenants[i%len(tenants)], door: door, random: newRandom(seed, uint64(1000+i)), seen: seen}
	}
	for range len(tenants) * ofTenant {
		all = append(all, next(""))
	}
	for _, d := range doors {
		for range len(tenants) * d.clients {
			all = append(all, d.client(next(d.name)))
		}
	}
	return all
}

// newKeepers makes those of the keeping tenants, and the administrator. Their numbers are
// their own: what other clients draw is the same with them and without.
func newKeepers(w *world, seed uint64) (all []actor) {
	seen := &sightings{known: map[string]bool{}, unknown: map[string]time.Time{}}
	next := func(tenant string) *client {
		number := firstKeeper + len(all)
		return &client{world: w, number: number, tenant: tenant, random: newRandom(seed, uint64(1000+number)), seen: seen}
	}
	for range keepersOfTenant {
		for _, tenant := range keeping {
			all = append(all, newKeeper(next(tenant)))
		}
	}
	return append(all, newBuilder(next("")))
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
	if e.answered() && e.Told != "" && !slices.Contains(c.held, e.Told) {
		c.held = append(c.held, e.Told)
		c.seen.add(c.tenant, c.door, e.Told)
	}
}

// code is a program with a token of its own.
func (c *client) code() (token string, code string) {
	return c.program(time.Duration(c.random.IntN(40)) * time.Millisecond)
}

// program is one that takes so long.
func (c *client) program(d time.Duration) (token string, code string) {
	token = c.name("token")
	return token, c.world.inPython(token, d)
}

// script is code for a shell.
func (c *client) script() (token string, code string) {
	token = c.name("token")
	return token, c.world.inShell(token, time.Duration(c.random.IntN(40))*time.Millisecond)
}

func (c *client) execute(ctx context.Context) {
	id := c.held[c.random.IntN(len(c.held))]
	token, code := c.code()
	e := event{Operation: opExecute, Key: c.key(), Instance: id, Token: token}
	c.persist(ctx, e, "/api/v1/instances/"+id+"/execute", map[string]any{"language": c.world.language(), "code": code})
}

func (c *client) run(ctx context.Context) {
	token, code := c.code()
	e := event{Operation: opRun, Key: c.key(), Token: token}
	body := map[string]any{"language": c.world.language(), "code": code}
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

// listed is all that its tenant has.
func (c *client) listed() event {
	return c.one(event{Operation: opList}, http.MethodGet, "/api/v1/instances", nil)
}

func (c *client) list() {
	for _, id := range c.seen.nobodys(c.listed().List) {
		c.one(event{Operation: opDestroy, Instance: id}, http.MethodDelete, "/api/v1/instances/"+id, nil)
	}
	if len(c.held) > 0 {
		id := c.held[c.random.IntN(len(c.held))]
		c.one(event{Operation: opLook, Instance: id}, http.MethodGet, "/api/v1/instances/"+id, nil)
	}
}

// steal reaches for what belongs to somebody else.
func (c *client) steal() {
	id := c.seen.ofOthers(c.tenant, c.door, c.random)
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
		c.one(e, http.MethodPost, "/api/v1/instances/"+id+"/execute", map[string]any{"language": c.world.language(), "code": code})
	}
}

// persist sends a POST, and again as long as it has a key or a session and there was
// no clear answer.
func (c *client) persist(ctx context.Context, e event, path string, body map[string]any) event {
	return c.again(ctx, e, e.Key != "" || e.Session != "" && e.Operation == opCreate, func(e event) event {
		return c.one(e, http.MethodPost, path, body)
	})
}

// again sends a request, and if it may be repeated as long as there was no clear answer.
func (c *client) again(ctx context.Context, e event, repeatable bool, send func(event) event) event {
	for range retries {
		done := send(e)
		again := done.Error != "" || done.Status >= 500 || done.Status == http.StatusConflict
		if !again || !repeatable || ctx.Err() != nil {
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

// ask sends a request and writes down what became of it, as read finds it in the answer.
func (c *client) ask(e event, req call, read func(e *event, a answer)) event {
	e.Client, e.Tenant, e.Door, e.Began = c.number, c.tenant, c.door, time.Now()
	a := c.world.send(cmp.Or(e.Patience, c.world.pace.ask), req)
	e.Ended, e.Status = time.Now(), a.Status
	if a.Err != nil {
		e.Error, e.Status = a.Err.Error(), 0
	} else {
		read(&e, a)
	}
	c.world.history.add(e)
	return e
}

// one sends a request of the broker's own API and writes down what became of it.
func (c *client) one(e event, method, path string, body any) event {
	req := call{Method: method, Path: path, Header: map[string]string{"Authorization": "Bearer " + tokenOf(c.tenant)}}
	if body != nil {
		req.body(body)
	}
	if e.Key != "" {
		req.Header[keyHeader] = e.Key
	}
	return c.ask(e, req, readOwn)
}

// readOwn reads an answer of the broker's own API.
func readOwn(e *event, a answer) {
	var told struct {
		ID         string `json:"id"`
		InstanceID string `json:"instance_id"`
		Code       string `json:"code"`
		Detail     string `json:"detail"`
		Status     any    `json:"status"` // a word, or the number of a problem
		Stdout     string `json:"stdout"`
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
	if !a.into(&told) {
		return
	}
	e.Told, e.Code, e.Detail = cmp.Or(told.ID, told.InstanceID), told.Code, told.Detail
	e.Provider, e.Reason, e.PlacedBy = told.Provider, told.Routing.Reason, told.Routing.PlacedBy
	for _, t := range told.Routing.Tried {
		e.Tried = append(e.Tried, t.Code)
	}
	for _, i := range told.Instances {
		e.List = append(e.List, i.ID)
	}
	for _, l := range told.Limits {
		if l.Limit != nil && l.Used > *l.Limit {
			e.List = append(e.List, fmt.Sprintf("%s: %v of %v", l.Name, l.Used, *l.Limit))
		}
	}
	if status, _ := told.Status.(string); e.answered() && (e.Operation == opExecute || e.Operation == opRun) {
		e.Printed = strings.TrimSpace(told.Stdout)
		if status != "succeeded" {
			e.Outcome = status
		}
	}
}
