// Package objectwatch follows the objects of one kind that a selector finds, as the API server
// tells of them. A Watch goes on where its connection breaks, begins again where the API
// server is silent, and tells who waits for an object of its changes. What a change means is
// the business of who opens it.
package objectwatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// Silence is how long the API server may say nothing. It sends a bookmark about once a
	// minute where there is nothing else to say. A watch that says nothing is asked for again
	// from where it was, which is one call.
	Silence = 90 * time.Second
	// listTime is how long one page of a list may take, and syncTime the first list.
	listTime = 30 * time.Second
	syncTime = 30 * time.Second
)

// Object is one of a kind, such as *corev1.Pod.
type Object interface {
	comparable
	runtime.Object
	metav1.Object
}

// Client lists and watches objects of a kind in a namespace, as the clients of client-go do.
type Client[List runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (List, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Source is where a Watch has the objects from that a selector finds. client-go waits for an
// answer, or for the next event of a watch, as long as the connection lasts: behind a proxy,
// whose own connection to the API server may be lost, that is for ever. Here each of them has
// its time.
func Source[List runtime.Object](client Client[List], selector string) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTime)
			defer cancel()
			options.LabelSelector = selector
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			ctx, cancel := context.WithCancel(ctx)
			// It covers the time until the answer begins, too.
			silent := time.AfterFunc(Silence, cancel)
			options.LabelSelector = selector
			told, err := client.Watch(ctx, options)
			if err != nil {
				silent.Stop()
				cancel()
				return nil, err
			}
			heard := watch.Filter(told, func(event watch.Event) (watch.Event, bool) {
				silent.Reset(Silence)
				return event, true
			})
			return &bounded{Interface: heard, end: sync.OnceFunc(func() {
				silent.Stop()
				cancel()
			})}, nil
		},
	}
}

// bounded is a watch that ends when it has been silent for too long.
type bounded struct {
	watch.Interface
	end func()
}

// Stop implements watch.Interface.
func (b *bounded) Stop() {
	b.end()
	b.Interface.Stop()
}

// Options of a Watch. All but Transform and Changed are required.
type Options[O Object] struct {
	// Kind in the log and in errors, in the plural.
	Kind string
	// Like is an object of the kind, empty.
	Like   O
	Source cache.ListerWatcher
	Logger hclog.Logger
	// Transform drops what nobody reads of an object.
	Transform func(O)
	// Changed is called for each change, one after the other, before those who listen are
	// told. An object that was made again by the same name while nobody watched is deleted
	// first.
	Changed func(object O, deleted bool)
}

// Watch is what the API server says of the objects.
type Watch[O Object] struct {
	informer cache.SharedInformer
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu sync.Mutex
	// waiting are told of each change of an object, by its name.
	waiting map[string]map[chan struct{}]struct{}
}

// Open returns a watch that has listed the objects once, and that its caller closes. It
// outlives ctx. The error is why the API server did not tell, where it said so.
func Open[O Object](ctx context.Context, o Options[O]) (*Watch[O], error) {
	w := &Watch[O]{waiting: map[string]map[chan struct{}]struct{}{}}
	w.informer = cache.NewSharedInformer(o.Source, o.Like, 0)
	if o.Transform != nil {
		if err := w.informer.SetTransform(func(of any) (any, error) {
			if object, ok := of.(O); ok {
				o.Transform(object)
			}
			return of, nil
		}); err != nil {
			return nil, err
		}
	}
	var lost error
	var losing sync.Mutex
	if err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		losing.Lock()
		defer losing.Unlock()
		lost = err
		o.Logger.Debug("the watch of "+o.Kind+" broke, and begins again", "error", err)
	}); err != nil {
		return nil, err
	}
	changed := func(of any, deleted bool) {
		if unknown, ok := of.(cache.DeletedFinalStateUnknown); ok {
			of = unknown.Obj
		}
		if object, ok := of.(O); ok {
			if o.Changed != nil {
				o.Changed(object, deleted)
			}
			w.tell(object.GetName())
		}
	}
	if _, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(of any) { changed(of, false) },
		UpdateFunc: func(before, of any) {
			if old, ok := before.(O); ok && old.GetUID() != uidOf[O](of) {
				changed(before, true)
			}
			changed(of, false)
		},
		DeleteFunc: func(of any) { changed(of, true) },
	}); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.running.Go(func() { w.informer.RunWithContext(life) })
	syncing, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	if !cache.WaitForCacheSync(syncing.Done(), w.informer.HasSynced) {
		w.Close()
		losing.Lock()
		defer losing.Unlock()
		if lost != nil {
			return nil, lost
		}
		return nil, fmt.Errorf("list the %s: %w", o.Kind, context.Cause(syncing))
	}
	return w, nil
}

func uidOf[O Object](of any) (uid types.UID) {
	if object, ok := of.(O); ok {
		uid = object.GetUID()
	}
	return uid
}

// Close ends the watch, and waits for its end.
func (w *Watch[O]) Close() {
	w.stop()
	w.running.Wait()
}

func (w *Watch[O]) tell(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiting := range w.waiting[name] {
		select {
		case waiting <- struct{}{}:
		default:
		}
	}
}

// Listen has changes of the object of a name told until stop is called.
func (w *Watch[O]) Listen(name string) (changes <-chan struct{}, stop func()) {
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

// Look returns an object as it was told last, nil if it is not there.
func (w *Watch[O]) Look(namespace, name string) (object O) {
	if of, found, err := w.informer.GetStore().GetByKey(namespace + "/" + name); found && err == nil {
		object, _ = of.(O)
	}
	return object
}

// All returns the objects as they were told last, in no order.
func (w *Watch[O]) All() (all []O) {
	for _, of := range w.informer.GetStore().List() {
		if object, ok := of.(O); ok {
			all = append(all, object)
		}
	}
	return all
}
