package objectwatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/objectwatch"
)

// silent is an API server that answers nothing until its caller gives up.
type silent struct {
	watches chan *watch.FakeWatcher
	asked   chan context.Context
}

// List implements objectwatch.Client.
func (s silent) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	if options.LabelSelector != "of=mine" {
		return &corev1.PodList{}, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// Watch implements objectwatch.Client.
func (s silent) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFake()
	s.watches <- w
	s.asked <- ctx
	return w, nil
}

func TestASilentAPIServerIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := silent{make(chan *watch.FakeWatcher, 1), make(chan context.Context, 1)}
		source := objectwatch.Source(server, "of=mine")
		began := time.Now()
		_, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Since(began), 30*time.Second)

		told, err := source.WatchWithContext(t.Context(), metav1.ListOptions{})
		assert.NilError(t, err)
		pods, asked := <-server.watches, <-server.asked
		began = time.Now()
		time.Sleep(objectwatch.Silence - time.Second)
		go pods.Modify(&corev1.Pod{})
		<-told.ResultChan()
		<-asked.Done() // the request of the watch ends
		assert.Equal(t, time.Since(began), 2*objectwatch.Silence-time.Second, "from what it said last")
		told.Stop()

		told, err = source.WatchWithContext(t.Context(), metav1.ListOptions{})
		assert.NilError(t, err)
		<-server.watches
		asked = <-server.asked
		told.Stop()
		assert.ErrorIs(t, asked.Err(), context.Canceled)
	})
}
