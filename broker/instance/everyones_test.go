package instance_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A kill does not wait for the provider to tell the executions.
func TestAKillEndsExecutionsOfAProviderThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnExecute = endless
		killed, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		other, _, err := s.Create(t.Context(), umbrella, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		lifted := make(chan struct{})
		first.OnDestroy = func(context.Context, string) error { <-lifted; return nil }

		var executions, kill sync.WaitGroup
		for range 2 {
			executions.Go(func() {
				execution, err := s.Execute(t.Context(), acme, killed.ID.String(), run("python").ExecuteRequest)
				assert.Check(t, err)
				assert.Check(t, cmp.Equal(execution.Result.Status, sdk.StatusCancelled))
				assert.Check(t, cmp.Equal(execution.Result.Detail, "an administrator destroyed the instance during the execution"))
				assert.Check(t, cmp.Equal(string(execution.Stdout), "so far"))
			})
		}
		rest, end := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			_, err := s.Execute(rest, umbrella, other.ID.String(), run("python").ExecuteRequest)
			assert.Check(t, cmp.ErrorIs(err, context.Canceled))
		})
		synctest.Wait() // until all of them run
		kill.Go(func() { assert.Check(t, s.Kill(t.Context(), killed.ID.String())) })
		executions.Wait() // although the provider destroys nothing
		_, err = s.Get(t.Context(), acme, killed.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
		info, err := s.Inspect(t.Context(), other.ID.String())
		assert.NilError(t, err)
		assert.Equal(t, info.Executions, 1, "another instance is none of its business")
		close(lifted)
		kill.Wait()
		end()
		others.Wait()
	})
}

func TestInstancesOfAll(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		for _, who := range []tenant.Tenant{acme, umbrella} {
			_, _, err := s.Create(t.Context(), who, instance.CreateRequest{Session: "s1"})
			assert.NilError(t, err)
		}
		assert.Check(t, cmp.Len(s.ListAll("", instance.ListRequest{}).Instances, 2))
		assert.Check(t, cmp.Len(s.ListAll("umbrella", instance.ListRequest{}).Instances, 1))
		assert.Check(t, cmp.Len(s.ListAll("nobody", instance.ListRequest{}).Instances, 0))
		assert.Check(t, cmp.Len(s.List(tenant.Tenant{}, instance.ListRequest{}).Instances, 0), "who is nobody sees nothing")
		for _, id := range []string{"", ":", "acme", "acme:s1:aaaaaaaaaaaaaaaaaaaa"} {
			_, err := s.Inspect(t.Context(), id)
			assertCode(t, err, sdk.CodeNotFound)
			assertCode(t, s.Kill(t.Context(), id), sdk.CodeNotFound)
		}
	})
}
