package claims

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
)

// LabelPool is on pods that the controller makes for a pool: its name. They have it still when
// they are instances; which they are, claims say.
const LabelPool = "sandbox-broker.io/pool"

// pool is what the cluster keeps ready for one process: a SandboxWarmPool and its
// SandboxTemplate, which have the same name. It serves all templates of the provider, whose
// pods differ in nothing.
type pool struct {
	name string
	size int32
}

// controllerTime is how long the controller may take until it looks at a new pool.
const controllerTime = 15 * time.Second

// ErrNoController means that nothing looks at the objects of agent-sandbox.
var ErrNoController = errors.New("the controller of agent-sandbox does not answer, or was started without --extensions")

// template is what the controller makes pods from.
func (s *Store) template(name string) *extensionsv1beta1.SandboxTemplate {
	labels, annotations := pods.Marks(s.o.Owner, s.o.Authority)
	labels[LabelPool] = name
	template := &extensionsv1beta1.SandboxTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1beta1.SandboxTemplateSpec{
			SandboxBlueprint: agentsv1beta1.SandboxBlueprint{
				PodTemplate: agentsv1beta1.PodTemplate{
					Spec: s.o.Blueprint.Spec, ObjectMeta: agentsv1beta1.PodMetadata{Labels: labels, Annotations: annotations},
				},
				Service: new(false),
			},
			// The policy that the controller would make lets nobody in but its own router. What
			// confines code is the same as without agent-sandbox.
			NetworkPolicyManagement:    extensionsv1beta1.NetworkPolicyManagementUnmanaged,
			EnvVarsInjectionPolicy:     extensionsv1beta1.EnvVarsInjectionPolicyDisallowed,
			VolumeClaimTemplatesPolicy: extensionsv1beta1.VolumeClaimTemplatesPolicyDisallowed,
		},
	}
	s.markPool(&template.ObjectMeta)
	return template
}

func (s *Store) markPool(object metav1.Object) {
	pods.Mark(object, s.o.Owner, s.o.Holder, "", s.o.Authority)
}

// Begin has the cluster keep that many pods ready for this process. It returns when the
// controller has seen that, or with ErrNoController. End undoes it.
func (s *Store) Begin(ctx context.Context, size int) error {
	p := &pool{name: newPoolName(), size: int32(size)} //nolint:gosec // settings bound it
	if err := s.make(ctx, p); err != nil {
		return err
	}
	if err := s.awaitSeen(ctx, p); err != nil {
		return errors.Join(err, s.removePool(ctx, p.name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool = p
	return nil
}

func (s *Store) make(ctx context.Context, p *pool) error {
	if _, err := s.client.templates.Create(ctx, s.template(p.name), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make a SandboxTemplate: %w", err)
	}
	made := &extensionsv1beta1.SandboxWarmPool{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Spec: extensionsv1beta1.SandboxWarmPoolSpec{
			Replicas: new(p.size), TemplateRef: extensionsv1beta1.SandboxTemplateRef{Name: p.name},
		},
	}
	s.markPool(&made.ObjectMeta)
	if _, err := s.client.pools.Create(ctx, made, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return errors.Join(fmt.Errorf("make a SandboxWarmPool: %w", err), s.removePool(ctx, p.name))
	}
	return nil
}

// Try asks the API server whether it would take the template, which it does not make.
func (s *Store) Try(ctx context.Context) error {
	_, err := s.client.templates.Create(ctx, s.template(newPoolName()), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// awaitSeen waits until the controller has looked at a pool.
func (s *Store) awaitSeen(ctx context.Context, p *pool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, controllerTime, ErrNoController)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		made, err := s.client.pools.Get(ctx, p.name, metav1.GetOptions{})
		if err == nil && made.Status.ObservedGeneration >= made.Generation {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// poolName is that of this process's pool, "" if it has none.
func (s *Store) poolName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pool == nil {
		return ""
	}
	return s.pool.name
}

// Waits says whether a pod is one that the cluster keeps ready for this process.
func (s *Store) Waits(pod *corev1.Pod) bool {
	name := s.poolName()
	return name != "" && waits(pod, name)
}

func waits(pod *corev1.Pod, pool string) bool {
	return pod.Labels[LabelPool] == pool && pod.Labels[agentsv1beta1.SandboxWarmPoolLabel] != ""
}

// anyWaits says whether the watch knows a pod that the cluster keeps ready for a pool.
func (s *Store) anyWaits(pool string) bool {
	return slices.ContainsFunc(s.o.Pods.Known(), func(pod *corev1.Pod) bool { return waits(pod, pool) })
}

// Resize has another number of pods kept ready. It does nothing where it is that number.
func (s *Store) Resize(ctx context.Context, size int) error {
	s.mu.Lock()
	p, to := s.pool, int32(size) //nolint:gosec // settings bound it
	if p == nil || p.size == to {
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": to}})
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	if _, err := s.client.pools.Patch(ctx, p.name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change the size of the pool: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.size = to
	return nil
}

// Keep makes the pool again if somebody has deleted it.
func (s *Store) Keep(ctx context.Context) error {
	s.mu.Lock()
	p := s.pool
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	_, err := s.client.pools.Get(ctx, p.name, metav1.GetOptions{})
	if err == nil {
		_, err = s.client.templates.Get(ctx, p.name, metav1.GetOptions{})
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	s.o.Logger.Warn("somebody deleted the pool or its template, which are made again", "pool", p.name)
	return s.make(ctx, p)
}

// Ready is how many pods the cluster has ready for this process, of how many it is to have.
func (s *Store) Ready(ctx context.Context) (ready, of int, err error) {
	name := s.poolName()
	if name == "" {
		return 0, 0, nil
	}
	made, err := s.client.pools.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, 0, err
	}
	if made.Spec.Replicas != nil {
		of = int(*made.Spec.Replicas)
	}
	return int(made.Status.ReadyReplicas), of, nil
}

// End removes the pool, and returns when its pods are gone.
func (s *Store) End(ctx context.Context) error {
	s.mu.Lock()
	p := s.pool
	s.pool = nil
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := s.removePool(ctx, p.name); err != nil {
		return err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := s.client.pools.Get(ctx, p.name, metav1.GetOptions{}); apierrors.IsNotFound(err) && !s.anyWaits(p.name) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("the pods of the pool are not gone yet: %w", context.Cause(ctx))
		}
	}
}

// removePool asks for the end of a pool and of its template, which may not be there.
func (s *Store) removePool(ctx context.Context, name string) error {
	var errs []error
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{s.client.pools.Delete, s.client.templates.Delete} {
		if err := remove(ctx, name, inForeground()); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweepPools removes the pools and templates of processes that are gone.
func (s *Store) sweepPools(ctx context.Context, gone map[string]bool) error {
	owned := metav1.ListOptions{LabelSelector: pods.Selector(s.o.Owner)}
	pools, err := s.client.pools.List(ctx, owned)
	if err != nil {
		return err
	}
	templates, err := s.client.templates.List(ctx, owned)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	note := func(object metav1.Object) {
		of := object.GetLabels()
		if of[pods.LabelOwner] == s.o.Owner && gone[of[pods.LabelHolder]] {
			names[object.GetName()] = true
		}
	}
	for i := range pools.Items {
		note(&pools.Items[i])
	}
	for i := range templates.Items {
		note(&templates.Items[i])
	}
	var errs []error
	for name := range names {
		errs = append(errs, s.removePool(ctx, name))
	}
	return errors.Join(errs...)
}

// newPoolName makes the name of a pool, which is the beginning of its pods' names.
func newPoolName() string { return "sandboxes-" + strings.ToLower(rand.Text()[:10]) }
