package nemesis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/model"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	// maxInstances is the quota of each frugal tenant, and frugals is how many of these there are.
	maxInstances = 4
	frugals      = 80
	// askTimeout is how long a client waits for an answer.
	askTimeout = 6 * time.Second
	// A subject is done with after so many operations, or so many of which nobody knows what
	// they did: the search for an order takes the longer the more of these there are.
	mostOperations, mostUnknown = 90, 6
)

// The tenants that have sessions, and requests with keys. The others are frugal.
const (
	ofSessions = "sessions"
	ofKeys     = "keys"
)

func frugal(n int) string { return fmt.Sprint("frugal-", n) }

func tenants() []string {
	all := []string{ofSessions, ofKeys}
	for n := range frugals {
		all = append(all, frugal(n))
	}
	return all
}

func tokenOf(tenant string) string { return "token-of-" + tenant }

// answer is what came back.
type answer struct {
	status int
	body   []byte
	err    error
}

// ask asks one broker.
func (f *fleet) ask(b *broker, method, path, tenant string, body any, key string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return answer{err: err}
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+b.address+path, payload)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+tokenOf(tenant))
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, body: text, err: err}
}

// outcome is what an answer says of what was asked for.
func (a answer) outcome() model.Outcome {
	switch {
	case errors.Is(a.err, syscall.ECONNREFUSED):
		return model.Refused // nobody has heard of it
	case a.err != nil || a.status >= http.StatusInternalServerError:
		return model.Unknown
	case a.status < http.StatusMultipleChoices:
		return model.Done
	case a.status == http.StatusNotFound:
		return model.Absent
	case a.status == http.StatusTooManyRequests && strings.Contains(string(a.body), "max_instances"):
		return model.Full
	default:
		return model.Refused
	}
}

// subject is what one history is of: a session, a frugal tenant or a key.
type subject struct {
	// name of the session, the tenant or the key.
	name string

	mu      sync.Mutex
	history model.History
	// unknown counts operations that may have changed something.
	unknown int
	// known are the instances that somebody was told of, in order.
	known []string
	over  bool
}

// note adds an operation.
func (s *subject) note(o model.Operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, o)
	if o.Outcome == model.Unknown && (o.Kind == model.Create || o.Kind == model.Destroy) {
		s.unknown++
	}
	if o.Kind == model.Create && o.Outcome == model.Done && !slices.Contains(s.known, o.ID) {
		s.known = append(s.known, o.ID)
	}
	s.over = s.over || len(s.history) >= mostOperations || s.unknown >= mostUnknown
}

// last returns one of the last instances that are known; "" if none is.
func (s *subject) last(random *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 {
		return ""
	}
	if random.IntN(4) > 0 {
		return s.known[len(s.known)-1]
	}
	return s.known[random.IntN(len(s.known))]
}

func (s *subject) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// worker is one client.
type worker struct {
	fleet  *fleet
	number int
	random *rand.Rand
	round  *round
}

// any is a broker, whichever.
func (w *worker) any() *broker { return w.fleet.brokers[w.random.IntN(brokers)] }

// do asks a broker and notes it.
func (w *worker) do(s *subject, o model.Operation, b *broker, method, path, tenant string, body any, key string) model.Operation {
	o.Client, o.Call = w.number, time.Now()
	a := w.fleet.ask(b, method, path, tenant, body, key)
	o.Return, o.Outcome = time.Now(), a.outcome()
	switch {
	case o.Outcome != model.Done:
	case o.Kind == model.Create, o.Kind == model.Ask && path == pathInstances:
		var made client.Instance
		if json.Unmarshal(a.body, &made) != nil || made.ID == "" {
			o.Outcome = model.Unknown
		}
		o.ID, o.Answer = made.ID, made.ID
	case o.Kind == model.Ask, o.Kind == model.Use:
		var ran client.Execution
		if json.Unmarshal(a.body, &ran) != nil || ran.Status != "succeeded" {
			o.Outcome = model.Unknown // it broke off
		}
		if o.Kind == model.Ask {
			o.Answer = ran.ExecutionID
		}
	}
	w.round.told(o, a)
	s.note(o)
	return o
}

const (
	pathInstances = "/api/v1/instances"
	pathExecute   = "/api/v1/execute"
	hours         = 6 * 3600
)

func (w *worker) create(s *subject, b *broker) model.Operation {
	return w.do(s, model.Operation{Kind: model.Create}, b, http.MethodPost, pathInstances, ofSessions, map[string]any{"session_id": s.name, "ttl": hours}, "")
}

func (w *worker) look(s *subject, b *broker, id string) model.Operation {
	return w.do(s, model.Operation{Kind: model.Look, ID: id}, b, http.MethodGet, pathInstances+"/"+id, ofSessions, nil, "")
}

func (w *worker) use(s *subject, b *broker, id string) model.Operation {
	token := w.token()
	return w.do(s, model.Operation{Kind: model.Use, ID: id, Answer: token}, b, http.MethodPost, pathInstances+"/"+id+"/execute", ofSessions, program(token), "")
}

func (w *worker) destroy(s *subject, b *broker, tenant, id string) model.Operation {
	return w.do(s, model.Operation{Kind: model.Destroy, ID: id}, b, http.MethodDelete, pathInstances+"/"+id, tenant, nil, "")
}

// token is the name of a program.
func (w *worker) token() string { return fmt.Sprintf("%d-%x", w.number, w.random.Uint64()) }

// program is code of which the cloud notes that it has run.
func program(token string) map[string]any {
	return map[string]any{"language": "wait", "code": fmt.Sprintf(`{"token": %q, "ms": 0}`, token)}
}

// rest is between two operations, and longer behind one without an answer.
func (w *worker) rest(ctx context.Context, o model.Operation) {
	d := between(w.random, 10*time.Millisecond, 60*time.Millisecond)
	if o.Outcome == model.Unknown || o.Outcome == model.Refused {
		d += between(w.random, 100*time.Millisecond, 400*time.Millisecond)
	}
	pause(ctx, d)
}

// inSession works in a session, beside others, until ctx ends or the session is done with.
func (w *worker) inSession(ctx context.Context, s *subject) {
	for ctx.Err() == nil && !s.isOver() {
		var o model.Operation
		switch n, id := w.random.IntN(20), s.last(w.random); {
		case n < 9 || id == "":
			o = w.create(s, w.any())
		case n < 13:
			o = w.look(s, w.any(), id)
		case n < 17:
			o = w.use(s, w.any(), id)
		default:
			o = w.destroy(s, w.any(), ofSessions, id)
		}
		w.rest(ctx, o)
	}
}

// asFrugal makes and ends instances of a frugal tenant, beside others.
func (w *worker) asFrugal(ctx context.Context, s *subject) {
	var mine []string
	for ctx.Err() == nil && !s.isOver() {
		var o model.Operation
		if len(mine) > 0 && w.random.IntN(5) < 2 {
			o = w.destroy(s, w.any(), s.name, mine[0])
			mine = mine[1:]
		} else if o = w.do(s, model.Operation{Kind: model.Create}, w.any(), http.MethodPost, pathInstances, s.name, map[string]any{"ttl": hours}, ""); o.Outcome == model.Done {
			mine = append(mine, o.ID)
		}
		w.rest(ctx, o)
	}
}

const (
	// answersOfKey is how often a key is asked again that has an answer, and triesOfKey how
	// often one that has none.
	answersOfKey, triesOfKey = 3, 12
)

// keyed is a request with a key, which creates an instance or runs code.
type keyed struct {
	subject
	path string
	body map[string]any
	// token of the code; "" for a creation.
	token string
}

func (w *worker) newKey() *keyed {
	k := &keyed{subject: subject{name: fmt.Sprintf("key-%d-%x", w.number, w.random.Uint64())}, path: pathInstances, body: map[string]any{"ttl": hours}}
	if w.random.IntN(2) == 0 {
		k.token = w.token()
		k.path, k.body = pathExecute, program(k.token)
	}
	return k
}

// withKey asks with a key again and again, until ctx ends or it was answered often enough.
func (w *worker) withKey(ctx context.Context, k *keyed) {
	answers := 0
	for tries := 0; ctx.Err() == nil && answers < answersOfKey && tries < triesOfKey; tries++ {
		o := w.do(&k.subject, model.Operation{Kind: model.Ask}, w.any(), http.MethodPost, k.path, ofKeys, k.body, k.name)
		if o.Outcome == model.Done {
			answers++
		}
		w.rest(ctx, o)
	}
}
