package instance

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// measureTime bounds one measurement.
const measureTime = 10 * time.Second

// Measure says what an instance of whomever uses. It is no use of the instance, which
// ends in its time as if nobody had looked. Errors are SB013 for an unknown instance,
// SB015 where its provider measures nothing, and SB009.
func (s *Service) Measure(ctx context.Context, id string) (sdk.InstanceMetrics, error) {
	if err := s.begin(); err != nil {
		return sdk.InstanceMetrics{}, err
	}
	defer s.calls.Done()
	e, i, err := s.registry.Find(ownerOf(id), id)
	if err != nil {
		return sdk.InstanceMetrics{}, s.InstanceElsewhere(ctx, ownerOf(id), id, err)
	}
	if !slices.Contains(i.Provider.Description().Capabilities, sdk.CapabilityMetrics) {
		return sdk.InstanceMetrics{}, faultOf(e, sdk.NotSupported(e.Label(), sdk.CapabilityMetrics))
	}
	// It is a lease that holds nothing, and is not released therefore.
	l := &Lease{InstanceID: i.Sandbox.ID, service: s, entry: e}
	if l.provider, err = s.providers.waitReady(ctx, i.Provider, measureTime, false); err != nil {
		return sdk.InstanceMetrics{}, faultOf(e, err)
	}
	meter, err := Capable[sdk.Meter](l)
	if err != nil {
		return sdk.InstanceMetrics{}, err
	}
	within, cancel := l.Watching(ctx)
	defer cancel()
	patience, done := context.WithTimeout(within, measureTime)
	defer done()
	m, err := meter.InstanceMetrics(patience, l.InstanceID)
	if err != nil && within.Err() == nil && patience.Err() != nil {
		return m, faultOf(e, sdk.Errorf(sdk.CodeUnavailable, "the provider did not say within %s what the instance uses", measureTime))
	}
	return m, l.Fault(within, err)
}
