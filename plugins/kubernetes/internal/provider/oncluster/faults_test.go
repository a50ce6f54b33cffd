package oncluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/fault"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// refuses is an answer of the API server that refuses a call.
func refuses(on string, status int, pause string) fault.Fault {
	f := fault.Fault{On: on, Status: status, Body: "a fault of the test"}
	if pause != "" {
		f.Header = map[string]string{"Retry-After": pause}
	}
	return f
}

const conflict = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the object has been modified","reason":"Conflict","code":409}`

func conflicts(times int) fault.Fault {
	return fault.Fault{On: patchPod, Times: times, Status: 409, Header: map[string]string{"Content-Type": "application/json"}, Body: conflict}
}

// garbage is an answer that is no JSON, although it says so.
func garbage(on string, after bool) fault.Fault {
	return fault.Fault{On: on, After: after, Status: 200, Header: map[string]string{"Content-Type": "application/json"}, Body: "<html>a proxy is not well</html>"}
}

// left waits until a broker has no pods.
func left(t *testing.T, c *cluster.Cluster, namespace string, brokers ...string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		for _, broker := range brokers {
			found, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: pods.LabelOwner + "=" + pods.OwnerOf(broker, "kubernetes")})
			if err != nil {
				return poll.Error(err)
			}
			for _, pod := range found.Items {
				return poll.Continue("%s of %q is there: %v %+v", pod.Name, broker, pod.Labels, pod.Status)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(3*time.Minute), poll.WithDelay(time.Second))
}

// pauseOf is the pause that an error asks for.
func pauseOf(err error) time.Duration {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// What a creation comes to when the API server fails. Nothing of it is left over.
func TestCreationsWhileTheAPIServerFails(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	const works = sdk.Code("")
	var brokers []string
	for _, test := range []struct {
		name   string
		http1  bool
		faults []fault.Fault
		code   sdk.Code
		pause  time.Duration
	}{
		{name: "a long pause is told", faults: []fault.Fault{refuses(createPod, 429, "30")}, code: sdk.CodeQuotaExceeded, pause: 30 * time.Second},
		{name: "a long pause is told when a pod is taken", faults: []fault.Fault{refuses(patchPod, 429, "30")}, code: sdk.CodeQuotaExceeded, pause: 30 * time.Second},
		{name: "a short pause is waited for", faults: []fault.Fault{{On: createPod, Times: 2, Status: 429, Header: map[string]string{"Retry-After": "1"}}}, code: works},
		{name: "500", faults: []fault.Fault{refuses(createPod, 500, "")}, code: sdk.CodeCreateFailed},
		{name: "503", faults: []fault.Fault{refuses(createPod, 503, "")}, code: sdk.CodeCreateFailed},
		{name: "503 with a pause", faults: []fault.Fault{refuses(createPod, 503, "60")}, code: sdk.CodeCreateFailed},
		{name: "504", faults: []fault.Fault{refuses(createPod, 504, "")}, code: sdk.CodeCreateFailed},
		{name: "503 when a pod is taken", faults: []fault.Fault{refuses(patchPod, 503, "")}, code: sdk.CodeUnavailable},
		{name: "a reset before the effect", faults: []fault.Fault{{On: createPod, Reset: true}}, code: sdk.CodeCreateFailed},
		{name: "a reset of the connection before the effect", http1: true, faults: []fault.Fault{{On: createPod, Reset: true}}, code: sdk.CodeCreateFailed},
		{name: "a reset after the effect", faults: []fault.Fault{{On: createPod, Reset: true, After: true, Times: 1}}, code: works},
		{name: "a reset of the connection after the effect", http1: true, faults: []fault.Fault{{On: createPod, Reset: true, After: true, Times: 1}}, code: works},
		{
			name: "a reset after the effect, and what is left cannot be removed",
			faults: []fault.Fault{
				{On: createPod, Reset: true, After: true, Times: 1}, refuses(createPod, 500, ""), refuses(deletePod, 500, ""),
			}, code: sdk.CodeCreateFailed,
		},
		{name: "garbage before the effect", faults: []fault.Fault{garbage(createPod, false)}, code: sdk.CodeCreateFailed},
		{name: "garbage after the effect", faults: []fault.Fault{garbage(createPod, true)}, code: sdk.CodeCreateFailed},
		{name: "a conflict that goes away", faults: []fault.Fault{conflicts(2)}, code: works},
		{name: "a conflict that stays", faults: []fault.Fault{conflicts(0)}, code: sdk.CodeUnavailable},
		{name: "a reset when a pod is taken, before the effect", faults: []fault.Fault{{On: patchPod, Reset: true}}, code: sdk.CodeConnectionFailed},
		{name: "a reset when a pod is taken, after the effect", faults: []fault.Fault{{On: patchPod, Reset: true, After: true}}, code: sdk.CodeConnectionFailed},
		{name: "garbage when a pod is taken, after the effect", faults: []fault.Fault{garbage(patchPod, true)}, code: sdk.CodeConnectionFailed},
		{name: "no end of a log that cannot be read", faults: []fault.Fault{{On: "GET /api/v1/namespaces/*/pods/*/log", Times: 3, Status: 500}}, code: works},
	} {
		// The process goes on until all have been tried: it sweeps once a minute.
		proxy := before(t, c, !test.http1)
		p := begin(t, t.TempDir(), test.name, given(c, namespace, map[string]any{"kubeconfig": proxy.kubeconfig}))
		brokers = append(brokers, test.name)
		t.Run(test.name, func(t *testing.T) {
			for _, f := range test.faults {
				proxy.Add(f)
			}
			made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "bash", IdempotencyKey: "key"})
			assert.Check(t, is.Equal(err == nil, test.code == works), "%v", err)
			if err != nil {
				assert.Check(t, is.Equal(sdk.CodeOf(err), test.code), "%v", err)
				assert.Check(t, is.Equal(pauseOf(err), test.pause))
			}
			proxy.Clear()
			if err != nil {
				// Once it is over, the same creation works.
				made, err = p.Create(t.Context(), sdk.CreateRequest{Template: "bash", IdempotencyKey: "key"})
				assert.NilError(t, err)
			}
			listed, err := p.List(t.Context())
			assert.NilError(t, err)
			assert.Check(t, is.Len(listed, 1))
			assert.Check(t, is.Equal(listed[0].ID, made.ID))
			assert.NilError(t, p.Destroy(t.Context(), made.ID))
		})
	}
	left(t, c, namespace, brokers...)
}

// Who gave up waiting for the answer, and has the key, gets what was made.
func TestACreationWhoseAnswerDidNotComeIsFoundByItsKey(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	for _, after := range []bool{true, false} {
		t.Run(fmt.Sprint("after the effect: ", after), func(t *testing.T) {
			proxy := before(t, c, true)
			broker := fmt.Sprint("hanging", after)
			p := begin(t, t.TempDir(), broker, given(c, namespace, map[string]any{"kubeconfig": proxy.kubeconfig}))
			proxy.Add(fault.Fault{On: patchPod, Hang: true, After: after, Times: 1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answered := make(chan error, 1)
			go func() {
				_, err := p.Create(ctx, sdk.CreateRequest{Template: "bash", IdempotencyKey: "key"})
				answered <- err
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if proxy.Hanging() == 0 {
					return poll.Continue("no pod is being taken")
				}
				return poll.Success()
			}, poll.WithTimeout(time.Minute))
			cancel()
			err := <-answered
			assert.ErrorIs(t, err, context.Canceled)
			taken, err := p.List(t.Context())
			assert.NilError(t, err)
			made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "bash", IdempotencyKey: "key"})
			assert.NilError(t, err)
			if after {
				assert.Assert(t, is.Len(taken, 1))
				assert.Equal(t, taken[0].ID, made.ID)
			}
			assert.Equal(t, p.run(t, made.ID, sdk.Bash, "echo here"), "here\n")
			listed, err := p.List(t.Context())
			assert.NilError(t, err)
			assert.Assert(t, is.Len(listed, 1))
			assert.NilError(t, p.Destroy(t.Context(), made.ID))
			left(t, c, namespace, broker)
		})
	}
}

// What calls about an instance come to when the API server fails; the instance is well.
func TestCallsWhileTheAPIServerFails(t *testing.T) {
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	proxy := before(t, c, true)
	p := begin(t, t.TempDir(), "calls", given(c, namespace, map[string]any{"kubeconfig": proxy.kubeconfig}))
	id := create(t, p, nil)
	list := func(ctx context.Context) error {
		_, err := p.List(ctx)
		return err
	}
	extend := func(ctx context.Context) error {
		_, err := p.SetTTL(ctx, id, time.Hour)
		return err
	}
	destroy := func(ctx context.Context) error { return p.Destroy(ctx, id) }
	const ends = sdk.Code("the caller's end")
	for _, test := range []struct {
		name  string
		call  func(context.Context) error
		fault fault.Fault
		code  sdk.Code
		pause time.Duration
	}{
		{"list: a pause", list, refuses(listPods, 429, "30"), sdk.CodeQuotaExceeded, 30 * time.Second},
		{"list: 500", list, refuses(listPods, 500, ""), sdk.CodeUnavailable, 0},
		{"list: 503 with a pause", list, refuses(listPods, 503, "20"), sdk.CodeUnavailable, 20 * time.Second},
		{"list: 504", list, refuses(listPods, 504, ""), sdk.CodeUnavailable, 0},
		{"list: a reset", list, fault.Fault{On: listPods, Reset: true}, sdk.CodeConnectionFailed, 0},
		{"list: half an answer", list, fault.Fault{On: listPods, CutAt: new(100)}, sdk.CodeConnectionFailed, 0},
		{"list: garbage", list, garbage(listPods, false), sdk.CodeConnectionFailed, 0},
		{"list: no answer", list, fault.Fault{On: listPods, Hang: true}, ends, 0},
		{"a later end: a pause", extend, refuses(patchPod, 429, "30"), sdk.CodeQuotaExceeded, 30 * time.Second},
		{"a later end: 500", extend, refuses(patchPod, 500, ""), sdk.CodeUnavailable, 0},
		{"a later end: a conflict that goes away", extend, conflicts(1), "", 0},
		{"a later end: a conflict that stays", extend, conflicts(0), sdk.CodeUnavailable, 0},
		{"a later end: a reset", extend, fault.Fault{On: patchPod, Reset: true}, sdk.CodeConnectionFailed, 0},
		{"a later end: no answer", extend, fault.Fault{On: patchPod, Hang: true}, ends, 0},
		{"the end: a pause", destroy, refuses(deletePod, 429, "30"), sdk.CodeQuotaExceeded, 30 * time.Second},
		{"the end: 500", destroy, refuses(deletePod, 500, ""), sdk.CodeUnavailable, 0},
		{"the end: 503", destroy, refuses(deletePod, 503, ""), sdk.CodeUnavailable, 0},
		{"the end: 504", destroy, refuses(deletePod, 504, ""), sdk.CodeUnavailable, 0},
		{"the end: a reset", destroy, fault.Fault{On: deletePod, Reset: true}, sdk.CodeConnectionFailed, 0},
		{"the end: garbage", destroy, garbage(deletePod, false), sdk.CodeUnavailable, 0},
		{"the end: no answer", destroy, fault.Fault{On: deletePod, Hang: true}, sdk.CodeUnavailable, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			proxy.Add(test.fault)
			defer proxy.Clear()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			err := test.call(ctx)
			if test.code == ends {
				assert.Check(t, is.ErrorIs(err, context.DeadlineExceeded))
				return
			}
			assert.Check(t, is.Equal(err == nil, test.code == ""), "%v", err)
			if err != nil {
				assert.Check(t, is.Equal(sdk.CodeOf(err), test.code), "%v", err)
				assert.Check(t, is.Equal(pauseOf(err), test.pause))
			}
			proxy.Clear()
			assert.Equal(t, p.run(t, id, sdk.Python, "print(1)"), "1\n")
		})
	}
	t.Run("another process cannot look for it", func(t *testing.T) {
		other := before(t, c, true)
		q := begin(t, p.dir, "calls", given(c, namespace, map[string]any{"kubeconfig": other.kubeconfig}))
		other.Add(refuses(getPod, 500, ""))
		_, err := q.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "true", Timeout: time.Minute, OutputLimit: 1 << 20}, &recorder{})
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
		other.Clear()
		assert.Equal(t, q.run(t, id, sdk.Python, "print(1)"), "1\n")
	})
	t.Run("the end: a reset after the effect", func(t *testing.T) {
		proxy.Add(fault.Fault{On: deletePod, Reset: true, After: true, Times: 1})
		err := p.Destroy(t.Context(), id)
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
		assert.NilError(t, p.Destroy(t.Context(), id))
	})
	left(t, c, namespace, "calls")
}

// Whatever becomes of the watch, promises are kept.
func TestTheWatchFails(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	for name, test := range map[string]struct {
		so watching
		// again is how often a watch must have begun at the end.
		again int
	}{
		"it breaks again and again":      {breaking, 5},
		"it has expired again and again": {expired, 5},
		"it tells of bookmarks alone":    {bookmarks, 2},
		"it does not begin":              {stalled, 2},
		"it is silent":                   {silent, 2},
		"it is garbled":                  {garbled, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := before(t, c, true)
			p := begin(t, t.TempDir(), name, given(c, namespace, map[string]any{"kubeconfig": proxy.kubeconfig}))
			began := proxy.Seen(watchPods)
			proxy.watches(test.so)
			id := create(t, p, nil)
			assert.Equal(t, p.run(t, id, sdk.Python, "print(1)"), "1\n")
			other := create(t, p, nil)
			// Somebody else ends it under code that runs.
			running := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				<-running
				ended <- c.Client.CoreV1().Pods(namespace).Delete(t.Context(), id, metav1.DeleteOptions{})
			}()
			result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo begun; sleep 1000", Timeout: 2 * time.Minute, OutputLimit: 1 << 20}, told(func() { close(running) }))
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusCancelled)
			assert.NilError(t, <-ended)
			assert.NilError(t, p.Destroy(t.Context(), other))
			listed, err := p.List(t.Context())
			assert.NilError(t, err)
			assert.Assert(t, is.Len(listed, 0))
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if again := proxy.Seen(watchPods) - began; again < test.again {
					return poll.Continue("%d watches have begun", again)
				}
				return poll.Success()
			}, poll.WithTimeout(4*time.Minute), poll.WithDelay(100*time.Millisecond))
			proxy.watches(nil)
			left(t, c, namespace, name)
		})
	}
}
