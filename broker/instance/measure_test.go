package instance_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Who looks at an instance every now and then does not keep it.
func TestAMeasurementIsNoUse(t *testing.T) {
	limits := instancetest.Limits()
	limits.DefaultTTL, limits.MaxIdle = time.Minute, time.Minute
	inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnMeasure = func(context.Context, string) (sdk.InstanceMetrics, error) {
			return sdk.InstanceMetrics{Processes: 3}, nil
		}
		info := create(t, s, instance.CreateRequest{})
		looks := 0
		for ; ; looks++ {
			m, err := s.Measure(t.Context(), info.ID.String())
			if err != nil {
				assertCode(t, err, sdk.CodeNotFound)
				break
			}
			assert.Equal(t, m.Processes, int64(3))
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, looks, 6)
	})
}

func TestMeasurementsThatFail(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info := create(t, s, instance.CreateRequest{})
		_, err := s.Measure(t.Context(), info.ID.String())
		assertCode(t, err, sdk.CodeNotSupported)
		for _, id := range []string{"", ":", "acme", "acme:s1:aaaaaaaaaaaaaaaaaaaa"} {
			_, err := s.Measure(t.Context(), id)
			assertCode(t, err, sdk.CodeNotFound)
		}
		first.OnMeasure = func(ctx context.Context, _ string) (sdk.InstanceMetrics, error) {
			<-ctx.Done()
			return sdk.InstanceMetrics{}, ctx.Err()
		}
		began := time.Now()
		_, err = s.Measure(t.Context(), info.ID.String())
		assertCode(t, err, sdk.CodeUnavailable)
		assert.ErrorContains(t, err, "did not say within 10s")
		assert.Equal(t, time.Since(began), 10*time.Second)
		first.OnMeasure = func(context.Context, string) (sdk.InstanceMetrics, error) {
			return sdk.InstanceMetrics{}, sdk.Errorf(sdk.CodeConflict, "the instance is being paused")
		}
		_, err = s.Measure(t.Context(), info.ID.String())
		assertCode(t, err, sdk.CodeConflict)
	})
}
