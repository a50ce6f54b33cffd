package provider_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// keyed is a creation as the broker asks for it.
func keyed() sdk.CreateRequest {
	return sdk.CreateRequest{Template: "python", IdempotencyKey: "k", Labels: map[string]string{sdk.LabelInstance: "i"}}
}

// Codes that say that nothing was made would let the broker ask another provider, and
// what it finds by List it may have given away.
func TestWhatACreationWithAKeyMayHaveMadeIsLeftToTheBroker(t *testing.T) {
	t.Parallel()
	const lost = "CreateSandbox"
	for name, test := range map[string]struct {
		faults []aliyunfake.Fault
		want   sdk.Code
	}{
		"no answer":                  {[]aliyunfake.Fault{{Action: lost, After: true, Status: 502}, {Action: lost, Times: 99, Status: 502}}, sdk.CodeUnavailable},
		"then it is throttled":       {[]aliyunfake.Fault{{Action: lost, After: true}, {Action: lost, Status: 429, Header: map[string]string{"Retry-After": "60"}}}, sdk.CodeUnavailable},
		"then the quota is used up":  {[]aliyunfake.Fault{{Action: lost, After: true}, {Action: lost, Status: 403, Body: `{"code":"QuotaExceeded.Sandbox"}`, Header: map[string]string{"Retry-After": "60"}}}, sdk.CodeUnavailable},
		"then the token has expired": {[]aliyunfake.Fault{{Action: lost, After: true}, {Action: lost, Status: 403, Body: `{"code":"InvalidSecurityToken.Expired"}`}}, sdk.CodeConnectionFailed},
		"it exists, and is not told": {[]aliyunfake.Fault{{Action: lost, After: true}, {Action: "GetSandbox", Status: 429, Header: map[string]string{"Retry-After": "60"}}}, sdk.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := start(t)
			p := configured(t, cloud)
			for _, f := range test.faults {
				cloud.Fault(f)
			}
			_, err := p.Create(t.Context(), keyed())
			assert.Equal(t, sdk.CodeOf(err), test.want, "%v", err)
			assert.Check(t, !knownToBeWithoutEffect(err), "%v", err)
			assert.Equal(t, cloud.Calls("DeleteSandbox"), 0)
			assert.Equal(t, cloud.Sandboxes(), 1)
			cloud.Mend()

			list, err := p.List(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(list), 1)
			assert.DeepEqual(t, list[0].Labels, keyed().Labels)
			made, err := p.Create(t.Context(), keyed())
			assert.NilError(t, err)
			assert.Equal(t, made.ID, list[0].ID)
			assert.Equal(t, cloud.Sandboxes(), 1)
		})
	}
}

func TestACreationWithAKeyThatIsGivenUpIsLeftToTheBroker(t *testing.T) {
	for name, action := range map[string]string{"while it is made": "CreateSandbox", "before it is ready": "Health", "before it is set up": "Command"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := start(t)
			p := configured(t, cloud)
			cloud.Fault(aliyunfake.Fault{Action: action, Stall: true, After: true, Times: 20})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := p.Create(ctx, keyed())
				failed <- err
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if cloud.Calls(action) > 0 && cloud.Sandboxes() == 1 {
					return poll.Success()
				}
				return poll.Continue("%s was not asked for", action)
			}, poll.WithTimeout(2*time.Minute))
			cancel()
			assert.ErrorIs(t, <-failed, context.Canceled)
			assert.Equal(t, cloud.Calls("DeleteSandbox"), 0)
			cloud.Mend()
			made, err := p.Create(t.Context(), keyed())
			assert.NilError(t, err)
			list, err := p.List(t.Context())
			assert.NilError(t, err)
			assert.Equal(t, len(list), 1)
			assert.Equal(t, list[0].ID, made.ID)
		})
	}
}

func TestASandboxThatIsNoGoodIsDestroyedAtOnce(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	cloud.Fault(aliyunfake.Fault{Action: "Health", Times: 9, Status: 403, Body: `{"code":"ERR_FORBIDDEN"}`})
	_, err := p.Create(t.Context(), keyed())
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
	assert.Equal(t, cloud.Sandboxes(), 0)
}

func TestACreationThatIsRefusedIsForgotten(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	cloud.Fault(aliyunfake.Fault{Action: "CreateSandbox", Status: 403, Body: `{"code":"InvalidSecurityToken.Expired"}`})
	_, err := p.Create(t.Context(), keyed())
	assert.Check(t, knownToBeWithoutEffect(err), "%v", err)
	looked := cloud.Calls("GetSandbox")
	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(list), 0)
	assert.Equal(t, cloud.Calls("GetSandbox"), looked, "nobody is asked about it")
}
