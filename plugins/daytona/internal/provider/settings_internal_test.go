package provider

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// They say who gets the key and the code. Who adds a setting of this kind adds it here; an
// administrator's token must not change it.
func TestSettingsThatAnAdministratorsTokenCannotChange(t *testing.T) {
	var names []string
	for _, f := range schema() {
		if f.FileOnly {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	assert.DeepEqual(t, names, []string{"api_url"})
}

func TestSettingsThatCannotBe(t *testing.T) {
	for name, test := range map[string]struct {
		given       map[string]any
		field, says string
	}{
		"a snapshot and an image":      {map[string]any{"snapshot": "s", "image": "python:3.12"}, "image", "one of them"},
		"the latest image":             {map[string]any{"image": "python:latest"}, "image", "tag"},
		"an image without a tag":       {map[string]any{"image": "python"}, "image", "tag"},
		"a size for a snapshot":        {map[string]any{"snapshot": "s", "cpus": 2}, "cpus", "image"},
		"pauses that delete":           {map[string]any{"pause_by": "stop"}, "keep_stopped", "as long as a pause"},
		"networks that are blocked":    {map[string]any{"block_network": true, "allowed_networks": []any{"10.0.0.0/8"}}, "allowed_networks", "block_network"},
		"a host that is no network":    {map[string]any{"allowed_networks": []any{"example.org"}}, "allowed_networks", "IPv4"},
		"a clock of less than minutes": {map[string]any{"auto_stop": "30s"}, "auto_stop", ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.given["api_key"] = "k"
			settings, problems := schema().Resolve(test.given)
			if len(problems) == 0 {
				problems = New(nil).(*Provider).Validate(t.Context(), settings)
			}
			assert.Assert(t, is.Len(problems, 1))
			assert.Equal(t, problems[0].Field, test.field)
			assert.Assert(t, strings.Contains(problems[0].Message, test.says), problems[0].Message)
		})
	}
}

func TestWhatSandboxesAreMadeOf(t *testing.T) {
	o := settings{Image: "python:3.12", CPUs: 2, MemoryGB: 4, AutoStop: 90 * time.Second, AllowedNets: []string{"10.0.0.0/8", "192.0.2.0/24"}}.order()
	assert.DeepEqual(t, o, api.NewSandbox{
		BuildInfo: &api.BuildInfo{DockerfileContent: "FROM python:3.12\n"}, CPU: 2, Memory: 4, AutoStopInterval: 2, NetworkAllowList: "10.0.0.0/8,192.0.2.0/24",
	})
}

func TestWhatARefusedCreationMeans(t *testing.T) {
	for text, want := range map[string]struct {
		status int
		code   sdk.Code
	}{
		"Total CPU limit exceeded. Maximum allowed: 10.":         {400, sdk.CodeQuotaExceeded},
		"CPU request 16 exceeds maximum allowed per sandbox (4)": {400, sdk.CodeInvalidConfig},
		"Snapshot x not found":                                   {404, sdk.CodeInvalidConfig},
		"Organization is suspended":                              {403, sdk.CodeQuotaExceeded},
		"Forbidden resource":                                     {403, sdk.CodeConnectionFailed},
		"boom":                                                   {500, sdk.CodeUnavailable},
		"Rate limit exceeded":                                    {429, sdk.CodeQuotaExceeded},
	} {
		err := (&Provider{}).explainCreation(t.Context(), &api.Error{Status: want.status, Message: text})
		assert.Check(t, is.Equal(sdk.CodeOf(err), want.code), text)
	}
}
