package provider_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestARefusalDoesNotTakeBackACreationBeforeIt(t *testing.T) {
	t.Parallel()
	cloud := start(t)
	p := configured(t, cloud)
	cloud.Fault(aliyunfake.Fault{Action: "CreateSandbox", Status: 502, Body: gateway})
	cloud.Fault(aliyunfake.Fault{Action: "CreateSandbox", Status: 429, Header: map[string]string{"Retry-After": "60"}})
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
	assert.Assert(t, !knownToBeWithoutEffect(err))
}
