package provider_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Codes that say that nothing was made would let the broker ask another provider.
func TestACreationWhoseEffectCannotBeLookedForIsUncertain(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	for name, c := range map[string]struct {
		look e2bfake.Fault
		code sdk.Code
	}{
		"too many requests":         {e2bfake.Fault{Status: 429, Body: problem(429, "")}, sdk.CodeUnavailable},
		"too many, with a time":     {e2bfake.Fault{Status: 429, Header: map[string]string{"Retry-After": "1"}}, sdk.CodeUnavailable},
		"the key is not taken":      {e2bfake.Fault{Status: 401, Body: problem(401, "")}, sdk.CodeUnavailable},
		"the list does not exist":   {e2bfake.Fault{Status: 404, Body: problem(404, "")}, sdk.CodeUnavailable},
		"the service is in trouble": {e2bfake.Fault{Status: 503, Body: problem(503, "")}, sdk.CodeUnavailable},
		"the list is not answered":  {e2bfake.Fault{Reset: true}, sdk.CodeConnectionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			p := configured(t, server, map[string]any{"max_retries": int64(1)})
			inject(server, []string{"POST /sandboxes"}, e2bfake.Fault{Reset: true, After: true}, 0)
			inject(server, []string{"GET /v2/sandboxes"}, c.look, 0)
			defer server.Honest()
			_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: name})
			assert.ErrorIs(t, err, &sdk.Error{Code: c.code})
			assert.Check(t, !knownToBeWithoutEffect(err))
			assert.Assert(t, is.Len(server.Sandboxes(), 1))

			// It stays: the broker may have taken it. Who asks again with the key gets it.
			server.Honest()
			made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: name})
			assert.NilError(t, err)
			assert.DeepEqual(t, server.Sandboxes(), []string{made.ID})
			assert.NilError(t, p.Destroy(t.Context(), made.ID))
		})
	}
}

func TestARefusalAfterAnAttemptThatWasLostIsUncertain(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, map[string]any{"max_retries": int64(1)})
	server.HideFromLists(3) // the looks between the attempts
	inject(server, []string{"POST /sandboxes"}, e2bfake.Fault{Reset: true, After: true}, 1)
	inject(server, []string{"POST /sandboxes"}, e2bfake.Fault{Status: 401, Body: problem(401, "")}, 1)
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: "k"})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
	assert.Check(t, !knownToBeWithoutEffect(err))
	assert.Assert(t, is.Len(server.Sandboxes(), 1))
}

func TestACallerThatLeavesACreationWithAKeyFindsWhatItHasMade(t *testing.T) {
	t.Parallel()
	req := sdk.CreateRequest{Template: "python", IdempotencyKey: "k", Labels: map[string]string{sdk.LabelInstance: "i"}}
	for name, hangs := range map[string]e2bfake.Fault{
		"before it is made":              {On: "POST /sandboxes", Hang: true},
		"before it is known":             {On: "POST /sandboxes", Hang: true, After: true},
		"while its effect is looked for": {On: "GET /v2/sandboxes", Hang: true},
		"before it answers":              {On: "POST /filesystem.Filesystem/MakeDir", Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := cloud(t, e2bfake.Options{})
			p := configured(t, server, nil)
			if hangs.On == "GET /v2/sandboxes" {
				inject(server, []string{"POST /sandboxes"}, e2bfake.Fault{Reset: true, After: true}, 1)
			}
			server.Inject(hangs)
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() {
				_, err := p.Create(ctx, req)
				left <- err
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(server.Hanging(), 1)) }, poll.WithTimeout(2*time.Minute))
			cancel()
			assert.ErrorIs(t, <-left, context.Canceled)
			server.Honest()

			// It has ended by itself, and nothing was ended.
			p.AwaitCreation("k")
			there := server.Sandboxes()
			list, err := p.List(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(list), len(there))
			made, err := p.Create(t.Context(), req)
			assert.NilError(t, err)
			if len(there) > 0 {
				assert.DeepEqual(t, there, []string{made.ID})
			}
			assert.DeepEqual(t, server.Sandboxes(), []string{made.ID})
		})
	}
}

func TestACallerThatLeavesACreationWithoutAKeyLeavesNothing(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Create(ctx, sdk.CreateRequest{Template: "python"})
	assert.ErrorIs(t, err, context.Canceled)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if server.Created() == 1 && len(server.Sandboxes()) == 0 {
			return poll.Success()
		}
		return poll.Continue("%d were made, %v are there", server.Created(), server.Sandboxes())
	}, poll.WithTimeout(2*time.Minute))
}
