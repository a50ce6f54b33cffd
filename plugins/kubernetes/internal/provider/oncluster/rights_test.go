package oncluster_test

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// account makes an account of a namespace with some rights there, and returns its kubeconfig.
func account(t *testing.T, c *cluster.Cluster, namespace, name string, rights ...rbacv1.PolicyRule) string {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	_, err := c.Client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	assert.NilError(t, err)
	_, err = c.Client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rights}, metav1.CreateOptions{})
	assert.NilError(t, err)
	_, err = c.Client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
	}, metav1.CreateOptions{})
	assert.NilError(t, err)
	token, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	assert.NilError(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a"}
	config.CurrentContext = "x"
	assert.NilError(t, clientcmd.WriteToFile(*config, file))
	return file
}

// The rights are those of docs/providers/kubernetes.md.
var (
	rightsToPods = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "list", "watch", "patch", "delete"}}
	rightsToRead = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}
	rightsToLogs = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}}

	rightsToClaims = []rbacv1.PolicyRule{
		{APIGroups: []string{claims.Group}, Resources: []string{"sandboxclaims"}, Verbs: []string{"create", "get", "list", "watch", "patch", "delete"}},
		{APIGroups: []string{claims.Group}, Resources: []string{"sandboxwarmpools"}, Verbs: []string{"create", "get", "list", "patch", "delete"}},
		{APIGroups: []string{claims.Group}, Resources: []string{"sandboxtemplates"}, Verbs: []string{"create", "get", "list", "delete"}},
	}
)

func testRightsForClaims(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	runs := func(t *testing.T, settings map[string]any, mode string) {
		p := begin(t, t.TempDir(), t.Name(), settings)
		assert.Equal(t, modeOf(t, p.Provider), mode)
		id := create(t, p, nil)
		assert.Equal(t, p.run(t, id, sdk.Bash, "echo well"), "well\n")
		assert.NilError(t, p.Destroy(t.Context(), id))
		assert.NilError(t, p.Close(t.Context()))
	}
	t.Run("those for claims do", func(t *testing.T) {
		runs(t, claimed(c, namespace, map[string]any{
			"kubeconfig": account(t, c, namespace, "claims", append(rightsToClaims, rightsToRead, rightsToLogs)...),
		}), "agent-sandbox")
	})
	only := account(t, c, namespace, "pods", rightsToPods, rightsToLogs)
	t.Run("without them it is pods", func(t *testing.T) {
		runs(t, given(c, namespace, map[string]any{"kubeconfig": only}), "pods")
	})
	t.Run("and what is missing is said", func(t *testing.T) {
		refusesMode(t, claimed(c, namespace, map[string]any{"kubeconfig": only}), sdk.CodeInvalidConfig, "create sandboxclaims, ")
	})
}
