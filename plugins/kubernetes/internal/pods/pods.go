// Package pods keeps the pods of one provider block in one namespace of a cluster: it makes
// them, watches them, hands each out once, finds those of an earlier process, and removes
// them. A pod of the pool belongs to the process that made it; taken, it is an instance,
// which any later process of the same broker has again.
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
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sandbox-broker/sandbox-broker/sdk"
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
	// annotationClientKey is the public half of the key that the guest answers.
	annotationClientKey = "sandbox-broker.io/client-key"
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
	Logger hclog.Logger
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

// Close ends the watch. Pods stay as they are.
func (s *Store) Close() { s.watched.close() }

func ownedBy(owner string) labels.Set {
	return labels.Set{LabelManagedBy: managedBy, LabelOwner: owner}
}

// Try asks the API server whether it would take the pod, which it does not make.
func (s *Store) Try(ctx context.Context, pod *corev1.Pod) error {
	_, err := s.pods.Create(ctx, s.marked(pod, "try", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// Create makes a pod for the pool of this process. Its name is new. clientKey is the public
// half of the key that its guest answers.
func (s *Store) Create(ctx context.Context, pod *corev1.Pod, template, clientKey string) (*corev1.Pod, error) {
	return s.pods.Create(ctx, s.marked(pod, template, clientKey), metav1.CreateOptions{})
}

func (s *Store) marked(pod *corev1.Pod, template, clientKey string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = s.o.Namespace
	metav1.SetMetaDataLabel(&pod.ObjectMeta, LabelManagedBy, managedBy)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, LabelOwner, s.o.Owner)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, LabelHolder, s.o.Holder)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, LabelTemplate, template)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotationClientKey, clientKey)
	return pod
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (s *Store) patch(ctx context.Context, name string, operations []operation) (*corev1.Pod, error) {
	body, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("write a patch: %w", err)
	}
	return s.pods.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
}

// ErrTaken says that a pod is not in the pool of this process any more.
var ErrTaken = sdk.Errorf(sdk.CodeConflict, "the pod was taken by somebody else")

// Lease is what is written at a pod that becomes an instance.
type Lease struct {
	Labels      map[string]string
	Creation    string    // the idempotency key; may be empty
	Expires     time.Time // zero for never
	Fingerprint string
}

// Take makes a pod of the pool an instance. The API server compares and writes at once, so
// that of two who want the same pod one gets ErrTaken.
func (s *Store) Take(ctx context.Context, name, uid string, l Lease) (*corev1.Pod, error) {
	text, err := json.Marshal(l.Labels)
	if err != nil {
		return nil, fmt.Errorf("write labels: %w", err)
	}
	label := func(key string) string { return "/metadata/labels/" + pointer(key) }
	annotation := func(key string) string { return "/metadata/annotations/" + pointer(key) }
	operations := []operation{
		{"test", "/metadata/uid", uid},
		{"test", label(LabelHolder), s.o.Holder},
		{Op: "remove", Path: label(LabelHolder)},
		{"add", label(LabelInstance), Digest("instance", l.Labels[sdk.LabelInstance])},
		{"add", label(LabelTenant), Digest("tenant", l.Labels[sdk.LabelTenant])},
		{"add", label(LabelSession), Digest("session", l.Labels[sdk.LabelTenant], l.Labels[sdk.LabelSession])},
		{"add", annotation(annotationLabels), string(text)},
		{"add", annotation(annotationTaken), time.Now().UTC().Format(time.RFC3339Nano)},
		{"add", annotation(annotationFingerprint), l.Fingerprint},
	}
	if !l.Expires.IsZero() {
		operations = append(operations, operation{"add", annotation(annotationExpires), l.Expires.UTC().Format(time.RFC3339Nano)})
	}
	if l.Creation != "" {
		operations = append(operations, operation{"add", label(LabelCreation), Digest("creation", l.Creation)})
	}
	taken, err := s.patch(ctx, name, operations)
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %w", ErrTaken, err)
	}
	return taken, err
}

// Created returns the pod that a creation took; nil if there is none. The watch may be a
// moment old; ask has the API server asked.
func (s *Store) Created(ctx context.Context, creation string, ask bool) (*corev1.Pod, error) {
	of := Digest("creation", creation)
	is := func(pod *corev1.Pod) bool { return pod.Labels[LabelCreation] == of && Ended(pod) == nil }
	for _, pod := range s.Known() {
		if is(pod) {
			return pod, nil
		}
	}
	if !ask {
		return nil, nil
	}
	found, err := s.list(ctx, is)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// SetExpiry writes when an instance ends by itself.
func (s *Store) SetExpiry(ctx context.Context, name string, at time.Time) error {
	_, err := s.patch(ctx, name, []operation{
		{"add", "/metadata/annotations/" + pointer(annotationExpires), at.UTC().Format(time.RFC3339Nano)},
	})
	return err
}

// Instances returns the pods that were taken and that go on, as the API server has them now.
func (s *Store) Instances(ctx context.Context) ([]*corev1.Pod, error) {
	return s.list(ctx, func(pod *corev1.Pod) bool { return IsInstance(pod) && Ended(pod) == nil })
}

// listAtOnce is how many pods one answer of the API server has.
const listAtOnce = 500

// list returns those of the owner's pods that are wanted.
func (s *Store) list(ctx context.Context, wanted func(*corev1.Pod) bool) ([]*corev1.Pod, error) {
	var found []*corev1.Pod
	options := metav1.ListOptions{LabelSelector: ownedBy(s.o.Owner).String(), Limit: listAtOnce}
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
			if pod := &page.Items[i]; pod.Labels[LabelOwner] == s.o.Owner && wanted(pod) {
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

// SweepEnded removes pods that have ended by themselves, as far as the watch knows.
func (s *Store) SweepEnded(ctx context.Context) error {
	var errs []error
	for _, pod := range s.Known() {
		if pod.DeletionTimestamp == nil && Ended(pod) != nil {
			errs = append(errs, s.delete(ctx, pod.Name, string(pod.UID)))
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
func (s *Store) Known() (all []*corev1.Pod) {
	for _, of := range s.watched.informer.GetStore().List() {
		if pod, ok := of.(*corev1.Pod); ok {
			all = append(all, pod)
		}
	}
	return all
}

// Remove asks for the end of a pod of this process's pool, which may not be there, and does
// not wait for it. Without a UID it is the one of that name.
func (s *Store) Remove(ctx context.Context, name, uid string) error {
	if uid != "" {
		return s.delete(ctx, name, uid)
	}
	err := s.pods.Delete(ctx, name, metav1.DeleteOptions{})
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

// delete asks for the end of a pod. It is no error if there is none.
func (s *Store) delete(ctx context.Context, name, uid string) error {
	err := s.pods.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(uid)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the latter: the name is another pod's now
		return nil
	}
	return err
}

// Destroy ends a pod and returns when it is gone.
func (s *Store) Destroy(ctx context.Context, name, uid string) error {
	if err := s.delete(ctx, name, uid); err != nil {
		return err
	}
	_, err := s.Await(ctx, name, uid, func(*corev1.Pod) (bool, error) { return false, nil })
	if _, gone := err.(*GoneError); gone { //nolint:errorlint // it is Await's own
		return nil
	}
	return err
}

// Find returns the pod of an instance of this owner, by the API server's own word; nil if
// there is none.
func (s *Store) Find(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := s.pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.Labels[LabelOwner] != s.o.Owner || !IsInstance(pod):
		return nil, nil // it is somebody else's
	}
	return pod, nil
}

// there says whether a pod is, by the API server's own word.
func (s *Store) there(ctx context.Context, name, uid string) (bool, error) {
	pod, err := s.pods.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && string(pod.UID) == uid, err
}

// logBytes is how much of a container's log is read.
const logBytes = 64 << 10

// Log returns how the log of a pod's container begins, of which some may be missing yet.
func (s *Store) Log(ctx context.Context, name string) ([]byte, error) {
	limit := int64(logBytes)
	return s.pods.GetLogs(name, &corev1.PodLogOptions{Container: ContainerName, LimitBytes: &limit}).DoRaw(ctx)
}

// IsInstance says whether a pod was taken.
func IsInstance(pod *corev1.Pod) bool { return pod.Labels[LabelInstance] != "" }

// LabelsOf are the broker's labels of an instance.
func LabelsOf(pod *corev1.Pod) map[string]string {
	var of map[string]string
	if json.Unmarshal([]byte(pod.Annotations[annotationLabels]), &of) != nil {
		return nil
	}
	return of
}

// TimesOf are when a pod was taken and when it ends by itself; zero if that is not known.
func TimesOf(pod *corev1.Pod) (taken, expires time.Time) {
	read := func(annotation string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, pod.Annotations[annotation])
		if err != nil {
			return time.Time{}
		}
		return at
	}
	return read(annotationTaken), read(annotationExpires)
}

// FingerprintOf is that of the guest's key in a pod that was taken.
func FingerprintOf(pod *corev1.Pod) string { return pod.Annotations[annotationFingerprint] }

// ClientKeyOf is the public half of the key that the guest in a pod answers.
func ClientKeyOf(pod *corev1.Pod) string { return pod.Annotations[annotationClientKey] }
