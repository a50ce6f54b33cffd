// Package pods keeps the pods of one provider block in one namespace of a cluster: it makes
// them, watches them, hands each out once, finds those of an earlier process, and removes
// them. A pod of the pool belongs to the process that made it; taken, it is an instance,
// which any later process of the same broker has again, or of another one that adopts it.
//
// What runs in them, and how it is reached, is the provider's matter.
package pods

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// Labels of pods. Kubernetes allows no more than 63 characters of a few kinds in a value, so
// that names which others choose are there by their digest.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelOwner is OwnerOf: the broker and the provider block.
	LabelOwner = "sandbox-broker.io/owner"
	// LabelHolder is on a pod of the pool: the process that made it, by HolderOf.
	LabelHolder = "sandbox-broker.io/holder"
	// LabelInstance is on a pod that was taken: the broker's name for the instance.
	LabelInstance = "sandbox-broker.io/instance"
	LabelTemplate = "sandbox-broker.io/template"
	LabelTenant   = "sandbox-broker.io/tenant"
	LabelSession  = "sandbox-broker.io/session"
	// LabelCreation is the idempotency key of the creation that took the pod.
	LabelCreation = "sandbox-broker.io/creation"

	managedBy = "sandbox-broker"
)

// Annotations of pods.
const (
	// annotationLabels are the broker's labels, as JSON.
	annotationLabels = "sandbox-broker.io/labels"
	// annotationTaken is when the pod was taken, annotationExpires when it ends by itself,
	// both as RFC 3339.
	annotationTaken   = "sandbox-broker.io/taken"
	annotationExpires = "sandbox-broker.io/expires"
	// annotationAuthority is the public key of whom the guest trusts.
	annotationAuthority = "sandbox-broker.io/authority"
	// annotationFingerprint is that of the guest's key.
	annotationFingerprint = "sandbox-broker.io/guest-fingerprint"
)

// ContainerName is the name of the container in each pod.
const ContainerName = "sandbox"

// Digest makes a value that Kubernetes takes for a label.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:10])
}

// OwnerOf is the value of LabelOwner.
func OwnerOf(brokerID, label string) string { return Digest("owner", brokerID, label) }

// HolderOf is the value of LabelHolder for the process with that state directory.
func HolderOf(stateDir string) string { return Digest("holder", stateDir) }

// Options of a Store.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	Owner     string
	// Holder is this process, and Gone are those whose pool nobody has any more.
	Holder string
	Gone   []string
	// Blueprint is what each pod is, and Authority the public key of whom its guest trusts.
	Blueprint *corev1.Pod
	Authority string
	Logger    hclog.Logger
}

// Store is the pods of one owner in a namespace.
type Store struct {
	o       Options
	pods    corev1client.PodInterface
	watched *watched
}

// Open watches the pods of an owner, and returns when it knows those that there are. The
// caller owes a Close.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{o: o, pods: o.Client.CoreV1().Pods(o.Namespace)}
	watched, err := watch(ctx, o)
	if err != nil {
		return nil, err
	}
	s.watched = watched
	return s, nil
}

// Logger is that of the options.
func (s *Store) Logger() hclog.Logger { return s.o.Logger }

// Close ends the watch. Pods stay as they are.
func (s *Store) Close() { s.watched.Close() }

// LabelsOfOwner are on everything of an owner.
func LabelsOfOwner(owner string) map[string]string {
	return map[string]string{LabelManagedBy: managedBy, LabelOwner: owner}
}

// Selector selects what an owner has.
func Selector(owner string) string { return labels.Set(LabelsOfOwner(owner)).String() }

// Try asks the API server whether it would take a pod, which it does not make.
func (s *Store) Try(ctx context.Context, name string) error {
	_, err := s.pods.Create(ctx, s.pod(name, "try"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// Create makes a pod for the pool of this process, by a name that is new.
func (s *Store) Create(ctx context.Context, name, template string) (*corev1.Pod, error) {
	return s.pods.Create(ctx, s.pod(name, template), metav1.CreateOptions{})
}

func (s *Store) pod(name, template string) *corev1.Pod {
	pod := s.o.Blueprint.DeepCopy()
	pod.Name, pod.Namespace = name, s.o.Namespace
	Mark(pod, s.o.Owner, s.o.Holder, template, s.o.Authority)
	return pod
}

func (s *Store) patch(ctx context.Context, name string, operations []Operation) (*corev1.Pod, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("write a patch: %w", err)
	}
	var patched *corev1.Pod
	// Where others, such as the kubelet, write to the pod at the same moment again and again,
	// the API server gives up.
	err = retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		patched, err = s.pods.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
		return err
	})
	return patched, err
}

// Take makes a pod of the pool an instance. Of two who want the same pod one gets ErrTaken.
func (s *Store) Take(ctx context.Context, ref Ref, l Lease) (*Instance, error) {
	operations, err := l.Operations(s.o.Holder)
	if err != nil {
		return nil, err
	}
	taken, err := s.patch(ctx, ref.Name, append([]Operation{{"test", "/metadata/uid", ref.UID}}, operations...))
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %w", ErrTaken, err)
	}
	if err != nil {
		return nil, err
	}
	return instanceOf(taken), nil
}

// instanceOf is the instance that a pod is.
func instanceOf(pod *corev1.Pod) *Instance {
	i := Described(pod, pod.Name, string(pod.UID))
	i.Ended = Ended(pod) != nil
	return i
}

// Created returns the instance that a creation took; nil if there is none. The watch may be a
// moment old; ask has the API server asked instead.
func (s *Store) Created(ctx context.Context, creation string, ask bool) (*Instance, error) {
	is := func(pod *corev1.Pod) bool { return MadeFor(pod, creation) && Ended(pod) == nil }
	if !ask {
		for _, pod := range s.Known() {
			if is(pod) {
				return instanceOf(pod), nil
			}
		}
		return nil, nil
	}
	found, err := s.list(ctx, is)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return instanceOf(found[0]), nil
}

// SetExpiry writes when an instance ends by itself, as long as it is this owner's.
func (s *Store) SetExpiry(ctx context.Context, name string, at time.Time) error {
	_, err := s.patch(ctx, name, []Operation{{"test", LabelPath(LabelOwner), s.o.Owner}, Expiry(at)})
	return err
}

// Instances returns the pods that were taken and that go on, as the API server has them now.
func (s *Store) Instances(ctx context.Context) ([]*Instance, error) {
	found, err := s.list(ctx, func(pod *corev1.Pod) bool { return IsInstance(pod) && Ended(pod) == nil })
	return described(found), err
}

// KnownInstances returns the pods that were taken, as the watch has them, which may be a moment
// old.
func (s *Store) KnownInstances() []*Instance {
	return described(slices.DeleteFunc(s.Known(), func(pod *corev1.Pod) bool { return !IsInstance(pod) }))
}

func described(found []*corev1.Pod) []*Instance {
	all := make([]*Instance, len(found))
	for i, pod := range found {
		all[i] = instanceOf(pod)
	}
	return all
}

// Live returns the pods of this owner that go on, by their UIDs, as the API server has them
// now.
func (s *Store) Live(ctx context.Context) (map[string]*corev1.Pod, error) {
	found, err := s.list(ctx, func(pod *corev1.Pod) bool { return Ended(pod) == nil })
	live := map[string]*corev1.Pod{}
	for _, pod := range found {
		live[string(pod.UID)] = pod
	}
	return live, err
}

// All returns the pods of the owner, as the API server has them now.
func (s *Store) All(ctx context.Context) ([]*corev1.Pod, error) {
	return s.list(ctx, func(*corev1.Pod) bool { return true })
}

// listAtOnce is how many pods one answer of the API server has.
const listAtOnce = 500

// list returns those of this owner's pods that are wanted.
func (s *Store) list(ctx context.Context, wanted func(*corev1.Pod) bool) ([]*corev1.Pod, error) {
	return s.listOf(ctx, s.o.Owner, wanted)
}

func (s *Store) listOf(ctx context.Context, owner string, wanted func(*corev1.Pod) bool) ([]*corev1.Pod, error) {
	var found []*corev1.Pod
	options := metav1.ListOptions{LabelSelector: Selector(owner), Limit: listAtOnce}
	for {
		page, err := s.pods.List(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" { // the rest of the list is too old
			found, options.Continue = nil, ""
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			// Whatever the server makes of selectors.
			if pod := &page.Items[i]; pod.Labels[LabelOwner] == owner && wanted(pod) {
				found = append(found, pod)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// Sweep removes what the pools of processes left that are no more, this one's own before it
// began included.
func (s *Store) Sweep(ctx context.Context) error {
	gone := map[string]bool{s.o.Holder: true}
	for _, holder := range s.o.Gone {
		gone[holder] = true
	}
	return s.remove(ctx, func(pod *corev1.Pod) bool { return gone[pod.Labels[LabelHolder]] })
}

// SweepEnded asks for the end of pods that have ended by themselves. Those that a controller
// made are its own to remove.
func (s *Store) SweepEnded(ctx context.Context) error {
	return s.sweep(ctx, func(pod *corev1.Pod) bool {
		return (IsInstance(pod) || pod.Labels[LabelHolder] != "") && Ended(pod) != nil
	})
}

// SweepLost asks for the end of pods of this process's pool that nobody in it looks after: the
// answer to their creation was lost, or their end could not be asked for.
func (s *Store) SweepLost(ctx context.Context, lookedAfter func(name, uid string) bool) error {
	return s.sweep(ctx, func(pod *corev1.Pod) bool {
		return pod.Labels[LabelHolder] == s.o.Holder && !lookedAfter(pod.Name, string(pod.UID))
	})
}

// SweepExpired asks for the end of instances whose time is over.
func (s *Store) SweepExpired(ctx context.Context, lookedAfter func(name string) bool) error {
	now := time.Now()
	return s.sweep(ctx, func(pod *corev1.Pod) bool {
		expires := instanceOf(pod).Expires
		return IsInstance(pod) && !expires.IsZero() && expires.Before(now) && !lookedAfter(pod.Name)
	})
}

// sweep asks for the end of pods, as far as the watch knows, and waits for none. The watch may
// be a moment old: one that has changed since, as one that was taken or was given more time,
// stays.
func (s *Store) sweep(ctx context.Context, which func(*corev1.Pod) bool) error {
	var errs []error
	for _, pod := range s.Known() {
		if pod.DeletionTimestamp == nil && which(pod) {
			if err := s.deleteAs(ctx, pod); !apierrors.IsConflict(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Store) remove(ctx context.Context, which func(*corev1.Pod) bool) error {
	left, err := s.list(ctx, which)
	if err != nil {
		return err
	}
	for _, pod := range left {
		if err := s.delete(ctx, pod.Name, string(pod.UID)); err != nil {
			return err
		}
	}
	return nil
}

// Known returns the pods of this owner as the watch has them, which may be a moment old. Most
// of their specification is not there.
func (s *Store) Known() []*corev1.Pod { return s.watched.All() }

// Remove asks for the end of a pod of this process's pool, which may not be there, and does
// not wait for it. Without a UID it is the one of that name.
func (s *Store) Remove(ctx context.Context, ref Ref) error {
	if ref.UID != "" {
		return s.delete(ctx, ref.Name, ref.UID)
	}
	err := s.pods.Delete(ctx, ref.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Ping asks the API server for its version.
func (s *Store) Ping(ctx context.Context) (string, error) {
	body, err := s.o.Client.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var told struct {
		GitVersion string `json:"gitVersion"`
	}
	err = json.Unmarshal(body, &told)
	return told.GitVersion, err
}

// delete asks for the end of a pod. It is no error if there is none, or if another owner has it
// by now. A deletion can ask for no label: it is of the pod as it was when it was this owner's.
func (s *Store) delete(ctx context.Context, name, uid string) error {
	pod, gone := s.watched.look(s.o.Namespace, name, uid)
	if gone { // or has become another owner's, and the watch says the same of both
		pod = nil
	}
	return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() (err error) {
		if pod == nil {
			if pod, err = s.owned(ctx, name, uid); err != nil || pod == nil {
				return err
			}
		}
		as := pod
		pod = nil
		return s.deleteAs(ctx, as)
	})
}

// deleteAs asks for the end of a pod, unless it has changed. It is no error if there is none.
func (s *Store) deleteAs(ctx context.Context, pod *corev1.Pod) error {
	err := s.pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Destroy ends a pod and returns when it is gone.
func (s *Store) Destroy(ctx context.Context, ref Ref) error {
	if err := s.delete(ctx, ref.Name, ref.UID); err != nil {
		return err
	}
	return s.AwaitGone(ctx, ref)
}

// AwaitGone returns when a pod is not there any more.
func (s *Store) AwaitGone(ctx context.Context, ref Ref) error {
	if pod, _ := s.watched.look(s.o.Namespace, ref.Pod, ref.UID); pod == nil { // it may have been gone before the watch began
		if there, err := s.Ask(ctx, ref.Pod, ref.UID); err == nil && there == nil {
			return nil
		}
	}
	_, err := s.Await(ctx, ref.Pod, ref.UID, func(*corev1.Pod) (bool, error) { return false, nil })
	if _, gone := err.(*GoneError); gone { //nolint:errorlint // it is Await's own
		return nil
	}
	return err
}

// Find returns an instance of this owner, by the API server's own word; nil if there is none.
func (s *Store) Find(ctx context.Context, name string) (*Instance, error) {
	pod, err := s.pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.Labels[LabelOwner] != s.o.Owner || !IsInstance(pod):
		return nil, nil // it is somebody else's
	}
	s.watched.answered(pod)
	return instanceOf(pod), nil
}

// Goes says whether a pod is there and goes on, by the API server's own word.
func (s *Store) Goes(ctx context.Context, name, uid string) (bool, error) {
	pod, err := s.pods.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && string(pod.UID) == uid && Ended(pod) == nil, err
}

// KnownToGo is Goes for who need not know at once: the API server is asked only about pods of
// which the watch says nothing.
func (s *Store) KnownToGo(ctx context.Context, ref Ref) (bool, error) {
	pod, gone := s.watched.look(s.o.Namespace, ref.Pod, ref.UID)
	switch {
	case gone:
		return false, nil
	case pod != nil:
		return Ended(pod) == nil, nil
	}
	return s.Goes(ctx, ref.Pod, ref.UID)
}

// logBytes is how much of a container's log is read.
const logBytes = 64 << 10

// Log returns how the log of a pod's container begins, of which some may be missing yet.
func (s *Store) Log(ctx context.Context, name string) ([]byte, error) {
	limit := int64(logBytes)
	return s.pods.GetLogs(name, &corev1.PodLogOptions{Container: ContainerName, LimitBytes: &limit}).DoRaw(ctx)
}
