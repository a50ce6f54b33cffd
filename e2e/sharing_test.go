package e2e_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// sharing starts brokers on one database that have one file of their configuration in common.
func sharing(t *testing.T, count int) []*harness.Broker {
	t.Helper()
	authority := certtest.NewAuthority(t)
	database := postgres.Start(t).Database()
	all := make([]*harness.Broker, count)
	for n := range all {
		pair := authority.Issue("127.0.0.1")
		all[n] = harness.Start(t, harness.Options{
			Config: `include = ["shared.hcl"]
metrics {
  listen = "127.0.0.1:0"
}
peers {
  listen      = "127.0.0.1:0"
  cert_file   = "peer/certificate.pem"
  key_file    = "peer/key.pem"
  ca_file     = "peer/ca.pem"
  shared_file = "shared.hcl"
}
`,
			Database: database, Plugins: map[string]string{"mock_cloud": mockPlugin},
			Prepare: func(dir string) {
				writePeer(t, filepath.Join(dir, "peer"), pair, authority)
				assert.NilError(t, os.WriteFile(filepath.Join(dir, "shared.hcl"), []byte(cloudConfig+adminBlock()), 0o600))
			},
		})
	}
	return all
}

func writePeer(t *testing.T, dir string, pair certtest.Pair, authority *certtest.Authority) {
	t.Helper()
	assert.NilError(t, os.Mkdir(dir, 0o700))
	for name, content := range map[string][]byte{"certificate.pem": pair.Certificate, "key.pem": pair.Key, "ca.pem": authority.PEM} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}

func sharedFile(b *harness.Broker) string { return filepath.Join(b.Dir, "shared.hcl") }

func sharedText(t *testing.T, b *harness.Broker) string {
	t.Helper()
	text, err := os.ReadFile(sharedFile(b))
	assert.NilError(t, err)
	return string(text)
}

// editShared adds something to the shared file of one broker, as an editor does.
func editShared(t *testing.T, b *harness.Broker, more string) {
	t.Helper()
	draft := filepath.Join(b.Dir, "draft")
	assert.NilError(t, os.WriteFile(draft, []byte(sharedText(t, b)+more), 0o600))
	assert.NilError(t, os.Rename(draft, sharedFile(b)))
}

// tenantOf is a block of a tenant whose token is its name.
func tenantOf(name string) string {
	return fmt.Sprintf("tenant %q {\n  token_sha256 = [\"%x\"]\n}\n", name, sha256.Sum256([]byte(name)))
}

func knows(t *testing.T, b *harness.Broker, token string) bool {
	t.Helper()
	answer := b.Do(http.MethodGet, "/api/v1/instances", token, nil)
	assert.NilError(t, answer.Err)
	return answer.Status == http.StatusOK
}

// A change of the shared file, by an editor on one broker or over the admin API of another, is in
// force on all of them, and in the files of all.
func TestASharedChangeComesInForceOnAllBrokers(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := sharing(t, 3)
	editShared(t, all[0], tenantOf("by_editor"))
	for _, b := range all {
		await(t, b, "the tenant is known", func() bool { return knows(t, b, "by_editor") })
		await(t, b, "the file has it", func() bool { return strings.Contains(sharedText(t, b), "by_editor") })
	}
	added := tenantChange(t, all[1], http.MethodPost, "", "", map[string]any{"name": "by_api"}, http.StatusCreated)
	for _, b := range all {
		await(t, b, "the tenant is known", func() bool { return knows(t, b, added.Token) })
		await(t, b, "the file is the same", func() bool { return sharedText(t, b) == sharedText(t, all[1]) })
	}
	// What is each broker's own is nobody else's business.
	text, err := os.ReadFile(all[2].ConfigFile())
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(all[2].ConfigFile(), []byte(string(text)+"log {\n  level = \"debug\"\n}\n"), 0o600))
	await(t, all[2], "its own is in force", func() bool { return strings.Contains(all[2].Log(), "settings: log") })
	assert.Check(t, knows(t, all[2], "by_editor"))
	assert.Check(t, !strings.Contains(all[0].Log(), "settings: log"))
}

// One broker has no plugin for a provider that is added: none of them gets it, and who asked for
// it is told whose fault it is. Once that one has ended, it does not count, and does not start
// with what it cannot do.
func TestOneBrokerThatRefusesKeepsAllFromASharedChange(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	all := sharing(t, 3)
	lacking := all[2]
	for _, b := range all[:2] {
		link(t, filepath.Join(b.Dir, "bin", "plugins", "mock_cloud"), filepath.Join(b.Dir, "bin", "plugins", "rare"))
	}
	before := sharedText(t, all[1])
	addition := "provider \"rare\" {\n  persist = true\n}\nproviders { active = \"mock\" }\n" + tenantOf("late")
	editShared(t, all[0], addition)
	await(t, all[0], "it is refused", func() bool {
		return strings.Contains(all[0].Log(), "the brokers that share the configuration did not agree")
	})
	assert.Check(t, is.Contains(all[0].Log(), "broker "+brokerID(t, lacking)+" refuses it"))
	assert.Check(t, is.Contains(all[0].Log(), `rare`))
	for _, b := range all {
		assert.Check(t, !knows(t, b, "late"))
	}
	assert.Equal(t, sharedText(t, all[1]), before)
	assert.Equal(t, sharedText(t, lacking), before)

	lacking.Kill()
	lacking.WaitGone()
	answer := all[0].Do(http.MethodPost, "/api/admin/sandbox/reload", adminToken, map[string]any{})
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	for _, b := range all[:2] {
		await(t, b, "the tenant is known", func() bool { return knows(t, b, "late") })
	}
	link(t, filepath.Join(lacking.Dir, "bin", "plugins", "mock_cloud"), filepath.Join(lacking.Dir, "bin", "plugins", "rare"))
	lacking.Restart()
	assert.Check(t, knows(t, lacking, "late"), "what was committed while it was away is in force from its start")
	assert.Equal(t, sharedText(t, lacking), sharedText(t, all[0]))
}

// Several brokers are changed at once: in the end all have the same, one change after the other.
func TestSharedChangesAtOnceComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	all := sharing(t, 3)
	tokens := make([]string, len(all))
	var group sync.WaitGroup
	for n, b := range all {
		group.Go(func() {
			await(t, b, "the change is made", func() bool {
				answer := change(t, b, http.MethodPost, "/tenants", "", map[string]any{"name": fmt.Sprint("t", n)})
				if answer.Status != http.StatusCreated {
					assert.Check(t, is.Equal(answer.Status, http.StatusConflict), "%s", answer.Body)
					return false
				}
				var a tenantAnswer
				answer.Into(t, &a)
				tokens[n] = a.Token
				return true
			})
		})
	}
	group.Wait()
	for _, b := range all {
		for _, token := range tokens {
			await(t, b, "each change is in force", func() bool { return knows(t, b, token) })
		}
		await(t, b, "the file is the same", func() bool { return sharedText(t, b) == sharedText(t, all[0]) })
	}

	// Of edits of the same text one is in force; the others are kept beside it.
	for n, b := range all {
		group.Go(func() { editShared(t, b, tenantOf(fmt.Sprint("edited_", n))) })
	}
	group.Wait()
	for n, b := range all {
		name := fmt.Sprint("edited_", n)
		await(t, b, "one of them is in force", func() bool {
			aside, _ := os.ReadFile(sharedFile(b) + ".not-in-force")
			same := sharedText(t, b) == sharedText(t, all[0])
			return same && strings.Contains(sharedText(t, b), "edited_") && (knows(t, b, name) || strings.Contains(string(aside), name))
		})
	}
}

// brokerID is what the others call a broker.
func brokerID(t *testing.T, b *harness.Broker) string {
	t.Helper()
	id, err := os.ReadFile(filepath.Join(b.Dir, "state", "broker_id"))
	assert.NilError(t, err)
	return strings.TrimSpace(string(id))
}

func link(t *testing.T, from, to string) {
	t.Helper()
	assert.NilError(t, os.Link(from, to))
}
