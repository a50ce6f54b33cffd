package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Call is what an account of pods asked the API server for.
type Call struct {
	// Verb is that of the right to it.
	Verb string
	// Group is the API group, empty for the core.
	Group string
	// Resource is its plural, with the subresource behind a slash if there is one.
	Resource string
	// Namespace is empty for what is in none.
	Namespace string
}

// Now is a moment that Calls can begin at.
func (c *Cluster) Now(t testing.TB) int { return len(c.audited(t)) }

func (c *Cluster) audited(t testing.TB) []byte {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(c.dir, "log", "audit"))
	assert.NilError(t, err)
	return log
}

// Calls returns what a service account has asked for since then, as the API server wrote it
// down, each once: what it was allowed, and what not. Paths that are no objects, such as
// /version, are not among them.
func (c *Cluster) Calls(t testing.TB, since int, namespace, account string) (allowed, forbidden map[Call]bool) {
	t.Helper()
	allowed, forbidden = map[Call]bool{}, map[Call]bool{}
	for line := range strings.Lines(string(c.audited(t)[since:])) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef *struct{ APIGroup, Resource, Subresource, Namespace string }
			Decisions map[string]string `json:"annotations"`
		}
		assert.NilError(t, json.Unmarshal([]byte(line), &event), "%s", line)
		if event.User.Username != "system:serviceaccount:"+namespace+":"+account || event.ObjectRef == nil {
			continue
		}
		call := Call{Verb: event.Verb, Group: event.ObjectRef.APIGroup, Resource: event.ObjectRef.Resource, Namespace: event.ObjectRef.Namespace}
		if event.ObjectRef.Subresource != "" {
			call.Resource += "/" + event.ObjectRef.Subresource
		}
		if event.Decisions["authorization.k8s.io/decision"] == "allow" {
			allowed[call] = true
		} else {
			forbidden[call] = true
		}
	}
	return allowed, forbidden
}

// NodeDir makes a directory on the node, for a volume, which is there as long as the cluster.
func (c *Cluster) NodeDir(t testing.TB) string {
	t.Helper()
	parent := filepath.Join(c.dir, "volumes")
	assert.NilError(t, os.MkdirAll(parent, 0o755))
	dir, err := os.MkdirTemp(parent, "") //nolint:usetesting // it is the node's, whose containers outlive a test
	assert.NilError(t, err)
	return dir
}
