package claims_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/claims"
)

// A real API server is asked in the tests on a cluster, which has one version and all rights.
func TestWhatAClusterMustHave(t *testing.T) {
	const agents, extensions = "agents.x-k8s.io/", "extensions.agents.x-k8s.io/"
	for name, test := range map[string]struct {
		serves []string
		denied string
		wants  string
		served bool
	}{
		"all of it":                {serves: []string{agents + "v1beta1", extensions + "v1beta1"}},
		"nothing":                  {wants: "does not serve agents.x-k8s.io/v1beta1"},
		"no extensions":            {serves: []string{agents + "v1beta1"}, wants: "does not serve extensions.agents.x-k8s.io/v1beta1"},
		"an old version":           {serves: []string{agents + "v1alpha1", extensions + "v1alpha1"}, wants: "agents.x-k8s.io/v1alpha1, and not yet"},
		"an old version of a part": {serves: []string{agents + "v1beta1", extensions + "v1alpha1"}, wants: "extensions.agents.x-k8s.io/v1alpha1, and not yet"},
		"no right":                 {serves: []string{agents + "v1beta1", extensions + "v1beta1"}, denied: "patch", wants: "patch sandboxclaims, patch sandboxwarmpools", served: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			for _, group := range test.serves {
				group, lacks, _ := strings.Cut(group, " without ")
				list := &metav1.APIResourceList{GroupVersion: group}
				for _, name := range []string{"sandboxes", "sandboxclaims", "sandboxtemplates", "sandboxwarmpools"} {
					if name != lacks {
						list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
					}
				}
				client.Resources = append(client.Resources, list)
			}
			client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
				review.Status.Allowed = review.Spec.ResourceAttributes.Verb != test.denied
				return true, review, nil
			})
			err := claims.Detect(t.Context(), client, "sandboxes")
			if test.wants == "" {
				assert.NilError(t, err)
				return
			}
			absent, ok := errors.AsType[*claims.AbsentError](err)
			assert.Assert(t, ok, "%v", err)
			assert.Check(t, is.Equal(absent.Served, test.served))
			assert.Check(t, is.ErrorContains(err, test.wants))
		})
	}
	t.Run("no answer is no absence", func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", metav1.Unversioned.WithResource("x").GroupResource(), "x", "", 0, false)
		})
		err := claims.Detect(t.Context(), client, "sandboxes")
		_, absent := errors.AsType[*claims.AbsentError](err)
		assert.Assert(t, err != nil && !absent, "%v", err)
	})
}
