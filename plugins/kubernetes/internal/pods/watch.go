package pods

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/objectwatch"
)

// GoneError says that a pod is not there any more.
type GoneError struct {
	Name string
	// Last is the pod as it was seen last; nil if it was never seen.
	Last *corev1.Pod
}

func (e *GoneError) Error() string { return "the pod " + e.Name + " is gone" }

// watched is what the API server says of the pods, as it says so. It goes on where the
// connection breaks, and knows then what happened meanwhile.
type watched struct {
	*objectwatch.Watch[*corev1.Pod]

	mu sync.Mutex
	// gone are pods that are no more, as they were, by their UIDs: who asks later than that.
	gone map[string]*corev1.Pod
	// asked are pods as the API server answered, of which the watch has said nothing since.
	asked map[string]*corev1.Pod
	told  func(pod *corev1.Pod, ending *Ending)
}

func watch(ctx context.Context, o Options) (w *watched, err error) {
	w = &watched{gone: map[string]*corev1.Pod{}, asked: map[string]*corev1.Pod{}}
	source := cache.ToListWatcherWithWatchListSemantics(objectwatch.Source(o.Client.CoreV1().Pods(o.Namespace), Selector(o.Owner)), o.Client)
	w.Watch, err = objectwatch.Open(ctx, objectwatch.Options[*corev1.Pod]{
		Kind: "pods", Like: &corev1.Pod{}, Source: source, Logger: o.Logger, Transform: slim, Changed: w.changed,
	})
	return w, err
}

// slim drops what nobody here reads, which is most of a pod.
func slim(pod *corev1.Pod) {
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
}

// rememberGone is for how long it is known how a pod was that is gone.
const rememberGone = time.Minute

func (w *watched) changed(pod *corev1.Pod, deleted bool) {
	w.mu.Lock()
	delete(w.asked, pod.Name)
	if deleted {
		w.gone[string(pod.UID)] = pod
		time.AfterFunc(rememberGone, func() { w.forget(pod) })
	}
	told := w.told
	w.mu.Unlock()
	if told != nil {
		told(pod, endingOf(pod, deleted))
	}
}

func (w *watched) forget(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone[string(pod.UID)] == pod {
		delete(w.gone, string(pod.UID))
	}
}

// rememberAsked is for how long it counts what the API server answered. By then the watch has
// begun again.
const rememberAsked = 2 * objectwatch.Silence

// answered notes a pod as the API server has it. The watch may be silent.
func (w *watched) answered(pod *corev1.Pod) {
	slim(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[pod.Name] = pod
	time.AfterFunc(rememberAsked, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.asked[pod.Name] == pod {
			delete(w.asked, pod.Name)
		}
	})
}

// look returns a pod as it was told last.
func (w *watched) look(namespace, name, uid string) (pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	asked := w.asked[name]
	w.mu.Unlock()
	if asked != nil && string(asked.UID) == uid {
		return asked, false
	}
	if pod := w.Look(namespace, name); pod != nil && string(pod.UID) == uid {
		return pod, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.gone[uid]
	return last, last != nil
}

// confirmEvery is how often the API server is asked for a pod of which the watch says
// nothing, for the watch may have ended unseen, and confirmTime is how long one answer may
// take.
const (
	confirmEvery = 15 * time.Second
	confirmTime  = 5 * time.Second
)

// Await returns a pod when it is as wanted, or with wanted's error, or *GoneError when there
// is no such pod any more.
func (s *Store) Await(ctx context.Context, name, uid string, wanted func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	changes, stop := s.watched.Listen(name)
	defer stop()
	ticker := time.NewTicker(confirmEvery)
	defer ticker.Stop()
	for {
		pod, gone := s.watched.look(s.o.Namespace, name, uid)
		if gone {
			return pod, &GoneError{name, pod}
		}
		if pod != nil {
			if done, err := wanted(pod); done || err != nil {
				return pod, err
			}
		}
		select {
		case <-changes:
		case <-ticker.C:
			now, err := s.Ask(ctx, name, uid)
			if err != nil {
				continue // it is asked again
			}
			if now == nil {
				return pod, &GoneError{name, pod}
			}
			if done, err := wanted(now); done || err != nil {
				return now, err
			}
		case <-ctx.Done():
			return pod, context.Cause(ctx)
		}
	}
}

// Ask returns a pod as the API server has it now, nil if it is not there any more or is another
// owner's. It takes no longer than confirmTime.
func (s *Store) Ask(ctx context.Context, name, uid string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	pod, err := s.owned(ctx, name, uid)
	if err == nil && pod != nil {
		s.watched.answered(pod)
	}
	return pod, err
}

// OnChange has told called for each change of a pod, one after the other, with why it has ended
// if it has. It is called once.
func (s *Store) OnChange(told func(pod *corev1.Pod, ending *Ending)) {
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	s.watched.told = told
}

// EndingOf says why a pod has ended, as far as the watch knows; nil if it goes on.
func (s *Store) EndingOf(ref Ref) *Ending {
	pod, gone := s.watched.look(s.o.Namespace, ref.Pod, ref.UID)
	if pod == nil {
		return nil
	}
	return endingOf(pod, gone)
}

func endingOf(pod *corev1.Pod, gone bool) *Ending {
	ending := Ended(pod)
	if ending == nil && gone {
		ending = &Ending{Asked: true, Reason: reasonDeleted}
	}
	return ending
}

// Listen has changes of the pod of a name told until stop is called.
func (s *Store) Listen(name string) (changes <-chan struct{}, stop func()) {
	return s.watched.Listen(name)
}

// ControlledBy returns the pod that an object of the namespace controls, as the watch has it;
// nil if there is none.
func (s *Store) ControlledBy(kind, name string) *corev1.Pod {
	is := func(pod *corev1.Pod) bool {
		by := metav1.GetControllerOf(pod)
		return by != nil && by.Kind == kind && by.Name == name
	}
	// Most have the same name.
	if pod := s.watched.Look(s.o.Namespace, name); pod != nil && is(pod) {
		return pod
	}
	for _, pod := range s.Known() {
		if is(pod) {
			return pod
		}
	}
	return nil
}
