package pods

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Ref names a sandbox and its pod.
type Ref struct {
	// Name is the instance's: that of the object that stands for it, which is the pod where
	// there is no other.
	Name string
	// Pod is the name of the pod, and UID is the pod's. Another pod of the same name is not
	// this sandbox.
	Pod, UID string
}

// Instance is what is written down of an instance, at the object that stands for it.
type Instance struct {
	Ref
	Template string
	Labels   map[string]string
	// Taken is when it was handed out, Expires when it ends by itself; zero if that is not
	// known.
	Taken, Expires time.Time
	// Fingerprint is that of the guest's key.
	Fingerprint string
	// Authority is the public key of whom the guest trusts.
	Authority string
	// Ended says that its pod does not go on.
	Ended bool
}

// Described is the instance that an object stands for.
func Described(object metav1.Object, pod, uid string) *Instance {
	annotations := object.GetAnnotations()
	read := func(annotation string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, annotations[annotation])
		if err != nil {
			return time.Time{}
		}
		return at
	}
	i := &Instance{
		Ref: Ref{Name: object.GetName(), Pod: pod, UID: uid}, Template: object.GetLabels()[LabelTemplate],
		Taken: read(annotationTaken), Expires: read(annotationExpires),
		Fingerprint: annotations[annotationFingerprint], Authority: annotations[annotationAuthority],
	}
	if json.Unmarshal([]byte(annotations[annotationLabels]), &i.Labels) != nil {
		i.Labels = nil
	}
	return i
}

// IsInstance says whether an object stands for an instance: a sandbox that was taken.
func IsInstance(object metav1.Object) bool { return object.GetLabels()[LabelInstance] != "" }

// MadeFor says whether an object stands for what a creation with that idempotency key took.
func MadeFor(object metav1.Object, creation string) bool {
	return object.GetLabels()[LabelCreation] == Digest("creation", creation)
}

// Marks are the labels and annotations by which pods of an owner are known whose guest trusts
// an authority, whoever makes them.
func Marks(owner, authority string) (labels, annotations map[string]string) {
	return map[string]string{LabelManagedBy: managedBy, LabelOwner: owner}, map[string]string{annotationAuthority: authority}
}

// Mark writes at an object whose it is, that nobody has taken it, and what its guest is.
func Mark(object metav1.Object, owner, holder, template, authority string) {
	labels, annotations := Marks(owner, authority)
	labels[LabelHolder] = holder
	if template != "" {
		labels[LabelTemplate] = template
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
}

// ErrTaken says that a sandbox is not in the pool of this process any more.
var ErrTaken = sdk.Errorf(sdk.CodeConflict, "the pod was taken by somebody else")

// Lease is what is written at a sandbox that becomes an instance.
type Lease struct {
	Labels      map[string]string
	Creation    string    // the idempotency key; may be empty
	Expires     time.Time // zero for never
	Fingerprint string
}

// Operation is one of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// LabelPath and AnnotationPath are where an Operation finds one of them.
func LabelPath(key string) string      { return "/metadata/labels/" + pointer(key) }
func AnnotationPath(key string) string { return "/metadata/annotations/" + pointer(key) }

// pointer is a key as a JSON pointer has it.
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// Operations write the lease at an object that the holder has in its pool, and fail for any
// other: the API server compares and writes at once.
func (l Lease) Operations(holder string) ([]Operation, error) {
	text, err := json.Marshal(l.Labels)
	if err != nil {
		return nil, fmt.Errorf("write labels: %w", err)
	}
	operations := []Operation{
		{"test", LabelPath(LabelHolder), holder},
		{Op: "remove", Path: LabelPath(LabelHolder)},
		{"add", LabelPath(LabelInstance), Digest("instance", l.Labels[sdk.LabelInstance])},
		{"add", LabelPath(LabelTenant), Digest("tenant", l.Labels[sdk.LabelTenant])},
		{"add", LabelPath(LabelSession), Digest("session", l.Labels[sdk.LabelTenant], l.Labels[sdk.LabelSession])},
		{"add", AnnotationPath(annotationLabels), string(text)},
		{"add", AnnotationPath(annotationTaken), time.Now().UTC().Format(time.RFC3339Nano)},
		{"add", AnnotationPath(annotationFingerprint), l.Fingerprint},
	}
	if !l.Expires.IsZero() {
		operations = append(operations, Expiry(l.Expires))
	}
	if l.Creation != "" {
		operations = append(operations, Operation{"add", LabelPath(LabelCreation), Digest("creation", l.Creation)})
	}
	return operations, nil
}

// Expiry writes when an instance ends by itself.
func Expiry(at time.Time) Operation {
	return Operation{"add", AnnotationPath(annotationExpires), at.UTC().Format(time.RFC3339Nano)}
}
