package routing

import (
	"sync"
	"time"
)

// newest is the weight of a creation in the average; those before it share the rest.
const newest = 0.2

// Router orders providers and remembers, by their labels, how they have done. It
// lives as long as the broker: a change of the configuration loses nothing. All
// methods may be called concurrently.
type Router struct {
	now func() time.Time

	mu        sync.Mutex
	providers map[string]*provider
	orders    int
}

// provider is what is known of one.
type provider struct {
	// average of what successful creations took, in seconds; 0 if there was none.
	average  float64
	measured time.Time
	circuit  circuit
}

// New returns a Router that knows nothing yet.
func New() *Router {
	return &Router{now: time.Now, providers: map[string]*provider{}}
}

// provider returns what is known of one. The caller holds mu.
func (r *Router) provider(label string) *provider {
	p := r.providers[label]
	if p == nil {
		p = &provider{}
		r.providers[label] = p
	}
	return p
}

// Succeeded takes down that a provider has made an instance in that time.
func (r *Router) Succeeded(label string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.provider(label)
	if p.measured.IsZero() {
		p.average = took.Seconds()
	} else {
		p.average += newest * (took.Seconds() - p.average)
	}
	p.measured = r.now()
	p.circuit = circuit{}
}

// Failed takes down that a provider could not make an instance, for a reason that is
// its own.
func (r *Router) Failed(label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.provider(label).circuit.fail(r.now())
}

// Enter reports whether a provider may be asked for an instance where others could be
// asked as well: not while its circuit is open. Of a circuit that has been open for
// long enough one request gets leave, to try, if the provider says that it is well.
// Nobody should wait long for what comes of a trial.
func (r *Router) Enter(label string, well bool) (may, trial bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.provider(label).circuit.enter(r.now(), well)
}

// Standing says how a provider has done.
func (r *Router) Standing(label string) Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.provider(label)
	s := p.circuit.standing(r.now())
	s.Creation = time.Duration(p.average * float64(time.Second))
	return s
}
