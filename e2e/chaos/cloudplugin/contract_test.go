package main

import (
	"regexp"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// ranCode are the cases that look at what code has done: the cloud runs none.
var ranCode = regexp.MustCompile(`^(volumes/(what one instance writes another one sees|files outlive the instance|one that an instance has is not deleted|` +
	`nothing is written to one that is read-only|what the files API writes code can change|no path and no link leads out of it)` +
	`|templates/(instances are made of what was built|its variables are below those of the creation))$`)

// TestTheCloudKeepsVolumesAndTemplatesAsTheSDKSays holds the cloud to the contract: what the
// chaos tests find is the broker's fault only if the cloud keeps its own part.
func TestTheCloudKeepsVolumesAndTemplatesAsTheSDKSays(t *testing.T) {
	t.Parallel()
	c, err := cloud.Start(cloud.Options{Name: "cloud", Address: "127.0.0.1:0"})
	assert.NilError(t, err)
	t.Cleanup(c.Close)
	providertest.Run(t, func(hclog.Logger) sdk.Provider { return &provider{parent: brokerProcess()} },
		providertest.WithSettings(map[string]any{"endpoint": c.URL()}),
		providertest.WithOnly(regexp.MustCompile(`^(volumes|templates)/`)),
		providertest.WithSkip(ranCode, "the cloud runs no code"),
		providertest.WithTemplate(providertest.Template{
			Request: sdk.BuildTemplateRequest{From: "registry.test/image"}, Language: sdk.Python, Code: `{"token": "x", "ms": 0}`,
		}))
	assert.Equal(t, len(c.Alive())+len(c.Volumes())+len(c.Templates())+len(c.Snapshots()), 0, "the cases leave nothing")
}
