package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

// TestASecretIsNotKeptForItsKey: who may abuse it is whoever can read state.db, or has
// learned the key of an administrator's request.
func TestASecretIsNotKeptForItsKey(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), "state.db")
	s, err := store.Open(path, store.Options{})
	assert.NilError(t, err)
	defer func() { assert.Check(t, s.Close()) }()
	fake := &tenants{list: []admin.Tenant{{Name: "acme"}}}
	f := start(t, keepingIn(t, s), withAdmin, func(o *api.Options, _ *fixture) { o.TenantConfigurator = fake })
	for name, request := range map[string][2]string{
		"a tenant":    {"", `{"name": "acme"}`},
		"a token":     {"/acme/tokens", ""},
		"another one": {"/acme/tokens/1111111111111111/rotate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			send := func() answer {
				return f.do(http.MethodPost, adminTenants+request[0], request[1], adminToken, "Idempotency-Key: "+strings.ReplaceAll(name, " ", "-"))
			}
			first := send()
			assert.Check(t, is.Contains(first.text, "sbk_s3cret"))
			assert.Assert(t, fake.asked != nil)
			fake.asked = nil
			again := send()
			assert.Assert(t, fake.asked == nil, "it was carried out twice")
			assert.Equal(t, again.StatusCode, first.StatusCode)
			assert.Equal(t, again.Header.Get("Idempotency-Replayed"), "true")
			assert.Equal(t, again.Header.Get("ETag"), first.Header.Get("ETag"))
			assert.Check(t, !strings.Contains(again.text, "sbk_s3cret"), "%s", again.text)
			assert.Check(t, is.Contains(again.text, `"token":""`))
			assert.Check(t, is.Contains(again.text, "cannot be shown again"))
			assert.Check(t, is.Contains(again.text, "0123456789abcdef"))
			content, err := os.ReadFile(path)
			assert.NilError(t, err)
			assert.Check(t, !strings.Contains(string(content), "sbk_s3cret"))
		})
	}
}
