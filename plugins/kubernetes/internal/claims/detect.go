package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// AbsentError says why agent-sandbox cannot be used in a cluster.
type AbsentError struct {
	// Served says that the cluster has it, and that this account may not use it.
	Served bool
	Why    string
}

func (e *AbsentError) Error() string { return e.Why }

// rights are what this package does with each resource.
func rights() map[string][]string {
	return map[string][]string{
		resourceClaims:    {"create", "get", "list", "watch", "patch", "delete"},
		resourcePools:     {"create", "get", "list", "patch", "delete"},
		resourceTemplates: {"create", "get", "list", "delete"},
	}
}

// Detect returns nil if a cluster has agent-sandbox in the version that is used here and this
// account may use it in the namespace, and else *AbsentError.
func Detect(ctx context.Context, client kubernetes.Interface, namespace string) error {
	for _, group := range []struct {
		schema.GroupVersion
		resources []string
	}{
		{agentsv1beta1.GroupVersion, []string{"sandboxes"}},
		{extensionsv1beta1.GroupVersion, slices.Sorted(maps.Keys(rights()))},
	} {
		if err := served(client, group.GroupVersion, group.resources); err != nil {
			return err
		}
	}
	var missing []string
	for resource, verbs := range rights() {
		for _, verb := range verbs {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: extensionsv1beta1.GroupVersion.Group, Resource: resource,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask for the rights of this account: %w", err)
			}
			if !review.Status.Allowed {
				missing = append(missing, verb+" "+resource)
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return &AbsentError{Served: true, Why: fmt.Sprintf("this account may not do in the namespace %s, for the API group %s: %s",
			namespace, extensionsv1beta1.GroupVersion.Group, strings.Join(missing, ", "))}
	}
	return nil
}

// served says whether a cluster serves resources of a group in its version.
func served(client kubernetes.Interface, of schema.GroupVersion, resources []string) error {
	list, err := client.Discovery().ServerResourcesForGroupVersion(of.String())
	if err == nil {
		for _, name := range resources {
			if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
				return &AbsentError{Why: fmt.Sprintf("the cluster does not serve %s of %s: install the whole of agent-sandbox", name, of)}
			}
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask for the resources of %s: %w", of, err)
	}
	old := schema.GroupVersion{Group: of.Group, Version: "v1alpha1"}
	if _, err := client.Discovery().ServerResourcesForGroupVersion(old.String()); err == nil {
		return &AbsentError{Why: fmt.Sprintf("the cluster serves %s, and not yet %s: install agent-sandbox v0.5 or later", old, of)}
	}
	return &AbsentError{Why: fmt.Sprintf("the cluster does not serve %s: install agent-sandbox v0.5 or later, with its extensions", of)}
}
