// Package claims keeps the sandboxes of one provider block as agent-sandbox's objects in one
// namespace of a cluster: the controller makes the pods and keeps some ready (pool.go), and
// each instance is a SandboxClaim, which it satisfies with one of those. When an instance's
// time is over and nobody has ended it, the controller does.
//
// detect.go says whether a cluster has agent-sandbox for this account. Pods are watched by
// package pods, whose labels and annotations are on claims too.
package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/objectwatch"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Annotations of claims that were taken.
const (
	// annotationPod and annotationPodUID are the pod that was handed out. Another pod with the
	// same name has none of its files and processes.
	annotationPod    = "sandbox-broker.io/pod"
	annotationPodUID = "sandbox-broker.io/pod-uid"
)

// lapse is how long after the end of an instance the controller ends it, which this process
// has done before unless it is gone: clocks may differ, and a renewal may be on its way.
const lapse = 10 * time.Second

// Options of a Store.
type Options struct {
	Config    *rest.Config
	Namespace string
	Owner     string
	// Holder is this process, and Gone are those whose claims and pools nobody has any more.
	Holder string
	Gone   []string
	// Pods are the owner's.
	Pods *pods.Store
	// Blueprint is what each pod is, and Authority the public key of whom its guest trusts.
	Blueprint *corev1.Pod
	Authority string
	// Untaken is how long a claim may stay that was not taken.
	Untaken time.Duration
	Logger  hclog.Logger
}

// Store is the claims of one owner in a namespace.
type Store struct {
	o       Options
	client  client
	watched *objectwatch.Watch[*extensionsv1beta1.SandboxClaim]

	mu   sync.Mutex
	pool *pool // nil as long as there is none
}

// Open watches the claims of an owner, and returns when it knows those that there are. The
// caller owes a Close.
func Open(ctx context.Context, o Options) (*Store, error) {
	client, err := newClient(o.Config, o.Namespace)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, client: client}
	if s.watched, err = objectwatch.Open(ctx, objectwatch.Options[*extensionsv1beta1.SandboxClaim]{
		Kind: "claims", Like: &extensionsv1beta1.SandboxClaim{}, Logger: o.Logger,
		Source: objectwatch.Source(client.claims, pods.Selector(o.Owner)),
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the watch. Claims stay as they are.
func (s *Store) Close() { s.watched.Close() }

// Create makes a claim for this process by a name that is new, and returns the pod that it is
// satisfied with, which may not run yet. The error is *sdk.Error where agent-sandbox says that
// there will be none.
func (s *Store) Create(ctx context.Context, name, template string) (*corev1.Pod, error) {
	from := s.poolName()
	if from == "" {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the pool of agent-sandbox is gone")
	}
	claim := &extensionsv1beta1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1beta1.SandboxClaimSpec{
			WarmPoolRef: extensionsv1beta1.SandboxWarmPoolRef{Name: from},
			Lifecycle: &extensionsv1beta1.Lifecycle{
				ShutdownTime:   shutdownTime(time.Now().Add(s.o.Untaken)),
				ShutdownPolicy: extensionsv1beta1.ShutdownPolicyDeleteForeground,
			},
		},
	}
	pods.Mark(claim, s.o.Owner, s.o.Holder, template, s.o.Authority)
	if _, err := s.client.claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	pod, err := s.awaitPod(ctx, name)
	if errors.Is(err, errNoPool) {
		err = errors.Join(err, s.Keep(ctx)) // for the next one
	}
	return pod, err
}

// shutdownTime is a moment as claims have it, in whole seconds and not before it.
func shutdownTime(at time.Time) *metav1.Time {
	return &metav1.Time{Time: at.Add(time.Second - 1).Truncate(time.Second)}
}

// confirmEvery is how often the API server is asked for a claim of which the watch says
// nothing: it may not have begun again since it broke.
const confirmEvery = 15 * time.Second

// awaitPod waits for the pod of a claim.
func (s *Store) awaitPod(ctx context.Context, name string) (*corev1.Pod, error) {
	changes, stop := s.watched.Listen(name)
	defer stop()
	var podChanges <-chan struct{}
	stopPods := func() {}
	defer func() { stopPods() }()
	ticker := time.NewTicker(confirmEvery)
	defer ticker.Stop()
	var claim *extensionsv1beta1.SandboxClaim
	for listened := ""; ; {
		switch seen := s.watched.Look(s.o.Namespace, name); {
		case seen != nil:
			claim = seen
		case claim != nil:
			return nil, errDeleted
		}
		if claim != nil {
			if sandbox := claim.Status.SandboxStatus.Name; sandbox != "" {
				if sandbox != listened {
					stopPods()
					podChanges, stopPods = s.o.Pods.Listen(sandbox)
					listened = sandbox
				}
				if pod := s.o.Pods.ControlledBy(sandboxKind, sandbox); pod != nil {
					return pod, nil
				}
			}
			if err := hopeless(claim); err != nil {
				return nil, err
			}
		}
		select {
		case <-changes:
		case <-podChanges:
		case <-ticker.C:
			there, err := s.client.claims.Get(ctx, name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil, errDeleted
			case err == nil && there.Status.SandboxStatus.Name != "":
				s.o.Logger.Debug("the watch of claims is late", "claim", name)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s", context.Cause(ctx), waiting(claim))
		}
	}
}

var errDeleted = sdk.Errorf(sdk.CodeCreateFailed, "somebody deleted the claim before it was satisfied")

func (s *Store) patch(ctx context.Context, name string, operations []pods.Operation) (*extensionsv1beta1.SandboxClaim, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("write a patch: %w", err)
	}
	return s.client.claims.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
}

// pathShutdown is where a claim says when the controller ends it.
const pathShutdown = "/spec/lifecycle/shutdownTime"

func expiry(at time.Time) []pods.Operation {
	if at.IsZero() {
		return []pods.Operation{{Op: "remove", Path: pathShutdown}}
	}
	return []pods.Operation{{Op: "add", Path: pathShutdown, Value: shutdownTime(at.Add(lapse))}}
}

// Take makes a claim of this process an instance. Of two who want the same one gets
// pods.ErrTaken.
func (s *Store) Take(ctx context.Context, ref pods.Ref, l pods.Lease) (*pods.Instance, error) {
	operations, err := l.Operations(s.o.Holder)
	if err != nil {
		return nil, err
	}
	operations = append(operations, expiry(l.Expires)...)
	operations = append(operations,
		pods.Operation{Op: "add", Path: pods.AnnotationPath(annotationPod), Value: ref.Pod},
		pods.Operation{Op: "add", Path: pods.AnnotationPath(annotationPodUID), Value: ref.UID})
	taken, err := s.patch(ctx, ref.Name, operations)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %w", pods.ErrTaken, err)
	case err != nil:
		return nil, err
	case taken.DeletionTimestamp != nil:
		return nil, fmt.Errorf("%w: it is being deleted", pods.ErrTaken)
	}
	return instanceOf(taken), nil
}

// instanceOf is the instance of a claim.
func instanceOf(claim *extensionsv1beta1.SandboxClaim) *pods.Instance {
	i := pods.Described(claim, claim.Annotations[annotationPod], claim.Annotations[annotationPodUID])
	i.Ended = claim.DeletionTimestamp != nil
	return i
}

// SetExpiry writes when an instance ends by itself.
func (s *Store) SetExpiry(ctx context.Context, name string, at time.Time) error {
	_, err := s.patch(ctx, name, append(expiry(at), pods.Expiry(at)))
	return err
}

// Created returns the instance that a creation took; nil if there is none. The watch may be a
// moment old; ask has the API server asked.
func (s *Store) Created(ctx context.Context, creation string, ask bool) (*pods.Instance, error) {
	all := s.watched.All()
	if ask {
		var err error
		if all, err = s.list(ctx); err != nil {
			return nil, err
		}
	}
	for _, claim := range all {
		if pods.MadeFor(claim, creation) && claim.DeletionTimestamp == nil {
			return s.alive(ctx, instanceOf(claim))
		}
	}
	return nil, nil
}

// alive returns an instance, nil if its pod does not go on.
func (s *Store) alive(ctx context.Context, i *pods.Instance) (*pods.Instance, error) {
	if goes, err := s.o.Pods.Goes(ctx, i.Pod, i.UID); err != nil || !goes {
		return nil, err
	}
	return i, nil
}

// Instances returns the instances that go on, as the API server has them now.
func (s *Store) Instances(ctx context.Context) ([]*pods.Instance, error) {
	all, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	live, err := s.o.Pods.Live(ctx)
	if err != nil {
		return nil, err
	}
	var found []*pods.Instance
	for _, claim := range all {
		if i := instanceOf(claim); pods.IsInstance(claim) && !i.Ended && live[i.UID] != nil {
			found = append(found, i)
		}
	}
	return found, nil
}

// KnownInstances returns the instances as the watch has them, which may be a moment old.
func (s *Store) KnownInstances() (all []*pods.Instance) {
	for _, claim := range s.watched.All() {
		if pods.IsInstance(claim) {
			all = append(all, instanceOf(claim))
		}
	}
	return all
}

// Find returns an instance of this owner, by the API server's own word; nil if there is none.
func (s *Store) Find(ctx context.Context, name string) (*pods.Instance, error) {
	claim, err := s.client.claims.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case claim.Labels[pods.LabelOwner] != s.o.Owner || !pods.IsInstance(claim):
		return nil, nil // it is somebody else's
	}
	i := instanceOf(claim)
	goes, err := s.o.Pods.Goes(ctx, i.Pod, i.UID)
	i.Ended = i.Ended || !goes
	return i, err
}

// listAtOnce is how many claims one answer of the API server has.
const listAtOnce = 500

// list returns the owner's claims.
func (s *Store) list(ctx context.Context) ([]*extensionsv1beta1.SandboxClaim, error) {
	var found []*extensionsv1beta1.SandboxClaim
	options := metav1.ListOptions{LabelSelector: pods.Selector(s.o.Owner), Limit: listAtOnce}
	for {
		page, err := s.client.claims.List(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" { // the rest of the list is too old
			found, options.Continue = nil, ""
			continue
		}
		if apierrors.IsNotFound(err) { // agent-sandbox was removed from the cluster, and all claims with it
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			// Whatever the server makes of selectors.
			if claim := &page.Items[i]; claim.Labels[pods.LabelOwner] == s.o.Owner {
				found = append(found, claim)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// Remove asks for the end of a claim, which may not be there, and does not wait for it.
func (s *Store) Remove(ctx context.Context, ref pods.Ref) error {
	err := s.client.claims.Delete(ctx, ref.Name, inForeground())
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// inForeground has an object stay until all that belongs to it is gone.
func inForeground() metav1.DeleteOptions {
	policy := metav1.DeletePropagationForeground
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

// Destroy ends a claim and returns when its pod is gone.
func (s *Store) Destroy(ctx context.Context, ref pods.Ref) error {
	if err := s.Remove(ctx, ref); err != nil {
		return err
	}
	return s.o.Pods.AwaitGone(ctx, ref)
}

// Sweep removes what processes left that are no more, this one's own before it began included:
// pools, and claims that were not taken.
func (s *Store) Sweep(ctx context.Context) error {
	gone := map[string]bool{s.o.Holder: true}
	for _, holder := range s.o.Gone {
		gone[holder] = true
	}
	if err := s.sweepPools(ctx, gone); err != nil {
		return err
	}
	left, err := s.list(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, claim := range left {
		if gone[claim.Labels[pods.LabelHolder]] {
			errs = append(errs, s.Remove(ctx, pods.Ref{Name: claim.Name}))
		}
	}
	return errors.Join(errs...)
}

// SweepEnded removes claims whose pods have ended by themselves, as far as the watch knows.
func (s *Store) SweepEnded(ctx context.Context) error {
	var errs []error
	for _, i := range s.KnownInstances() {
		if i.Ended {
			continue // it is being deleted
		}
		goes, err := s.o.Pods.KnownToGo(ctx, i.Ref)
		if err == nil && !goes {
			err = s.Remove(ctx, i.Ref)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
