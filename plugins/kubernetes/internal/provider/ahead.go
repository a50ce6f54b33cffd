package provider

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
)

// ahead readies the guests of pods that the cluster keeps ready, before anybody wants them:
// then a claim has only to be satisfied.
type ahead struct {
	m *maker
	// waits says whether a pod is one of them.
	waits   func(*corev1.Pod) bool
	life    context.Context //nolint:containedctx // ends with close
	end     context.CancelFunc
	running sync.WaitGroup
	// room bounds how many are readied at once that nobody waits for.
	room chan struct{}

	mu    sync.Mutex
	byUID map[string]*readying
}

// readying is a pod whose guest is being readied, or was.
type readying struct {
	s *sandbox
	// wanted is closed by want, when somebody waits for it, and done when it is over; err says
	// how.
	wanted, done chan struct{}
	want         func()
	err          error
}

// readiedAtOnce is how many guests are readied at once that nobody waits for.
const readiedAtOnce = 8

func newAhead(life context.Context, m *maker, waits func(*corev1.Pod) bool) *ahead {
	a := &ahead{m: m, waits: waits, room: make(chan struct{}, readiedAtOnce), byUID: map[string]*readying{}}
	a.life, a.end = context.WithCancel(life)
	return a
}

// close lets go of the guests that nobody has taken.
func (a *ahead) close() {
	a.end()
	a.running.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.byUID {
		a.m.forget(r.s)
	}
	clear(a.byUID)
}

// changed is told of each change of a pod.
func (a *ahead) changed(pod *corev1.Pod, ended bool) {
	if ended {
		a.drop(string(pod.UID))
		return
	}
	if running, err := pods.Running(pod); running && err == nil && a.waits(pod) && !a.m.knows(string(pod.UID)) {
		a.ready(pods.Ref{Pod: pod.Name, UID: string(pod.UID)})
	}
}

// prepared is how many pods wait whose guests are ready.
func (a *ahead) prepared() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.byUID {
		select {
		case <-r.done:
			if r.err == nil {
				n++
			}
		default:
		}
	}
	return n
}

func (a *ahead) drop(uid string) {
	a.mu.Lock()
	r := a.byUID[uid]
	delete(a.byUID, uid)
	a.mu.Unlock()
	if r != nil {
		a.m.forget(r.s)
	}
}

// ready readies the guest of a pod, once. It returns nil when there is an end of it all.
func (a *ahead) ready(ref pods.Ref) *readying {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.byUID[ref.UID]; r != nil || a.life.Err() != nil {
		return r
	}
	r := &readying{s: a.m.track(ref), wanted: make(chan struct{}), done: make(chan struct{})}
	r.want = sync.OnceFunc(func() { close(r.wanted) })
	a.byUID[ref.UID] = r
	a.running.Go(func() {
		defer close(r.done)
		r.err = a.start(r)
	})
	return r
}

func (a *ahead) start(r *readying) error {
	select {
	case a.room <- struct{}{}:
		defer func() { <-a.room }()
	case <-r.wanted:
	case <-a.life.Done():
		return context.Cause(a.life)
	}
	ctx, cancel := context.WithTimeout(a.life, startTime)
	defer cancel()
	err := a.m.start(ctx, r.s, "")
	if err != nil && a.life.Err() == nil {
		a.m.store.Logger().Debug("the guest of a pod that waits is not ready", "pod", r.s.Pod, "error", err)
	}
	return err
}

var errEnding = errors.New("the provider is being closed")

// take returns the sandbox of a pod that somebody waits for, ready.
func (a *ahead) take(ctx context.Context, ref pods.Ref) (*sandbox, error) {
	r := a.ready(ref)
	if r == nil {
		return nil, errEnding
	}
	r.want()
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	a.mu.Lock()
	delete(a.byUID, ref.UID)
	a.mu.Unlock()
	s := r.s
	if r.err != nil { // it may be better now
		a.m.forget(s)
		s = a.m.track(ref)
		if err := a.m.start(ctx, s, ""); err != nil {
			a.m.forget(s)
			return nil, err
		}
	}
	s.Name = ref.Name
	return s, nil
}
