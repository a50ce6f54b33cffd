package pods

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// pointer is a key as a JSON pointer has it.
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

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
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu sync.Mutex
	// waiting are told of each change of a pod, by the pod's name.
	waiting map[string]map[chan struct{}]struct{}
	// gone are pods that are no more, as they were: who asks later than that.
	gone map[string]*corev1.Pod
	told func(*corev1.Pod)
}

// syncTime is how long the first list may take.
const syncTime = 30 * time.Second

func watch(ctx context.Context, o Options) (*watched, error) {
	w := &watched{waiting: map[string]map[chan struct{}]struct{}{}, gone: map[string]*corev1.Pod{}}
	factory := informers.NewSharedInformerFactoryWithOptions(o.Client, 0, informers.WithNamespace(o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = ownedBy(o.Owner).String() }),
		informers.WithTransform(slim))
	w.informer = factory.Core().V1().Pods().Informer()
	var lost error
	var once sync.Mutex
	if err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		once.Lock()
		defer once.Unlock()
		lost = err
		o.Logger.Debug("the watch of pods broke, and begins again", "error", err)
	}); err != nil {
		return nil, err
	}
	if _, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(of any) { w.changed(of, false) },
		UpdateFunc: func(_, of any) { w.changed(of, false) },
		DeleteFunc: func(of any) { w.changed(of, true) },
	}); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.running.Go(func() { w.informer.RunWithContext(life) })
	syncing, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	if !cache.WaitForCacheSync(syncing.Done(), w.informer.HasSynced) {
		w.close()
		once.Lock()
		defer once.Unlock()
		if lost != nil {
			return nil, lost
		}
		return nil, fmt.Errorf("list the pods: %w", context.Cause(syncing))
	}
	return w, nil
}

func (w *watched) close() {
	w.stop()
	w.running.Wait()
}

// slim drops what nobody here reads, which is most of a pod.
func slim(of any) (any, error) {
	pod, ok := of.(*corev1.Pod)
	if !ok {
		return of, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	return pod, nil
}

// rememberGone is for how long it is known how a pod was that is gone.
const rememberGone = time.Minute

func (w *watched) changed(of any, deleted bool) {
	if unknown, ok := of.(cache.DeletedFinalStateUnknown); ok {
		of = unknown.Obj
	}
	pod, ok := of.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	if deleted {
		w.gone[pod.Name] = pod
		time.AfterFunc(rememberGone, func() { w.forget(pod) })
	}
	for waiting := range w.waiting[pod.Name] {
		select {
		case waiting <- struct{}{}:
		default:
		}
	}
	told := w.told
	w.mu.Unlock()
	if told != nil {
		told(pod)
	}
}

func (w *watched) forget(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone[pod.Name] == pod {
		delete(w.gone, pod.Name)
	}
}

// listen has changes of a pod told until stop is called.
func (w *watched) listen(name string) (changes <-chan struct{}, stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := make(chan struct{}, 1)
	if w.waiting[name] == nil {
		w.waiting[name] = map[chan struct{}]struct{}{}
	}
	w.waiting[name][told] = struct{}{}
	return told, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.waiting[name], told); len(w.waiting[name]) == 0 {
			delete(w.waiting, name)
		}
	}
}

// look returns a pod as it was told last.
func (w *watched) look(namespace, name, uid string) (pod *corev1.Pod, gone bool) {
	of, found, err := w.informer.GetStore().GetByKey(namespace + "/" + name)
	if found && err == nil {
		if pod, ok := of.(*corev1.Pod); ok && string(pod.UID) == uid {
			return pod, false
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.gone[name]
	return last, last != nil && string(last.UID) == uid
}

// confirmEvery is how often the API server is asked for a pod of which the watch says
// nothing: it may not have begun again since it broke.
const confirmEvery = 15 * time.Second

// Await returns a pod when it is as wanted, or with wanted's error, or *GoneError when there
// is no such pod any more.
func (s *Store) Await(ctx context.Context, name, uid string, wanted func(*corev1.Pod) (bool, error)) (*corev1.Pod, error) {
	changes, stop := s.watched.listen(name)
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
			if there, err := s.there(ctx, name, uid); err == nil && !there {
				return pod, &GoneError{name, pod}
			}
		case <-ctx.Done():
			return pod, context.Cause(ctx)
		}
	}
}

// OnChange has told called for each change of a pod, one after the other. It is called once.
func (s *Store) OnChange(told func(*corev1.Pod)) {
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	s.watched.told = told
}
