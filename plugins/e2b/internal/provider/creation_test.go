package provider_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestARefusalDoesNotTakeBackACreationBeforeIt(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]e2bfake.Fault{
		"no room":          {Status: 429, Body: problem(429, "")},
		"no such template": {Status: 404, Body: problem(404, "")},
	} {
		t.Run(name, func(t *testing.T) {
			server := cloud(t, e2bfake.Options{})
			p := configured(t, server, map[string]any{"max_retries": int64(1)})
			on := []string{"POST /sandboxes", "POST /v2/sandboxes"}
			inject(server, on, e2bfake.Fault{Status: 502, Body: "bad gateway"}, 1)
			inject(server, on, refusal, 0)
			_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: "k"})
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
			assert.Assert(t, !knownToBeWithoutEffect(err))
		})
	}
}
