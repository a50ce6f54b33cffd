package instance_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAProviderIsAskedOnlyForWhatItCan(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var asked sdk.ExecuteRequest
		first.OnExecute = func(_ context.Context, req sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			asked = req
			if req.ContextID == "unknown" {
				return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
			}
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		_, err := s.Run(t.Context(), acme, run("python"))
		assert.NilError(t, err)
		assert.Assert(t, asked.Artifacts == nil)

		req := run("python")
		req.Files = []string{"a.csv"}
		_, err = s.Run(t.Context(), acme, req)
		assert.Check(t, cmp.ErrorContains(err, "SB015: the provider first has no artifacts"))
		assert.Assert(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 0), "nothing was made for it")

		first.Capabilities = []sdk.Capability{sdk.CapabilityArtifacts}
		_, err = s.Run(t.Context(), acme, req)
		assert.NilError(t, err)
		assert.DeepEqual(t, asked.Artifacts, &sdk.ArtifactLimits{Files: []string{"a.csv"}, MaxCount: 20, MaxBytes: 4 << 20, MaxTotalBytes: 16 << 20})

		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		in := instance.ExecuteRequest{Code: "1", ContextID: "unknown"}
		_, err = s.Execute(t.Context(), acme, info.ID.String(), in)
		assert.Check(t, cmp.ErrorContains(err, "SB015: the provider first has no contexts"))
		synctest.Wait() // the first instance is being destroyed, by the provider as it is
		first.Capabilities = append(first.Capabilities, sdk.CapabilityContexts)
		_, err = s.Execute(t.Context(), acme, info.ID.String(), in)
		assert.Check(t, cmp.ErrorContains(err, "SB013: context_id: no such context"))
		in.ContextID = "known"
		_, err = s.Execute(t.Context(), acme, info.ID.String(), in)
		assert.NilError(t, err, "the instance is still there")
		assert.Equal(t, asked.Language, sdk.Language(""))

		for _, files := range [][]string{{""}, {"a\x00"}, {strings.Repeat("x", 1025)}, make([]string, 21)} {
			req.Files = files
			_, err = s.Run(t.Context(), acme, req)
			assert.Check(t, cmp.ErrorContains(err, "SB010: artifacts.files: "))
		}
	})
}
