package instance

import (
	"context"
	"errors"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// VolumeHost is what volumes need to know of instances and their providers.
type VolumeHost struct{ service *Service }

// VolumesOf returns that of a service.
func VolumesOf(s *Service) VolumeHost { return VolumeHost{s} }

// HasVolume reports whether an instance of a provider has a volume, or may have it.
func (h VolumeHost) HasVolume(label, volumeID string) bool {
	return h.service.registry.HasVolume(label, volumeID)
}

// labelled returns a provider of the catalog. The error is SB009 for one that is no more.
func (h VolumeHost) labelled(label string) (Provider, error) {
	if p := routing.Labelled(h.service.catalog.Providers(), label); p != nil {
		return p, nil
	}
	return nil, sdk.Errorf(sdk.CodeUnavailable, "the provider %q, which has the volume, is not in the configuration any more", label)
}

// ReadyProvider waits until a provider of the catalog can be asked. Errors carry SB009.
func (h VolumeHost) ReadyProvider(ctx context.Context, label string) (sdk.Provider, error) {
	p, err := h.labelled(label)
	if err != nil {
		return nil, err
	}
	return h.service.providers.waitReady(ctx, p, h.service.limits().CreateTimeout, false)
}

// LeaseVolume returns the use of a volume of a provider for a capability of its files.
// Errors are SB015 where the provider lacks the capability, and SB009.
func (h VolumeHost) LeaseVolume(ctx context.Context, label, volumeID string, capability sdk.Capability) (*Lease, error) {
	if err := h.service.begin(); err != nil {
		return nil, err
	}
	l := &Lease{InstanceID: volumeID, service: h.service, label: label}
	p, err := h.labelled(label)
	if err == nil && !slices.Contains(p.Description().Capabilities, capability) {
		err = sdk.NotSupported(label, capability)
	}
	if err == nil {
		l.provider, err = h.service.providers.waitReady(ctx, p, h.service.limits().CreateTimeout, false)
	}
	if err != nil {
		l.Release()
		return nil, &Fault{Provider: label, Err: err}
	}
	return l, nil
}

// Explained puts the failure of a call of a provider about a volume into words for the
// tenant. nil gives nil.
func (h VolumeHost) Explained(ctx context.Context, label string, provider sdk.Provider, err error) error {
	if err == nil {
		return nil
	}
	return volumeFault(ctx, label, explained(ctx, provider, err))
}

// volumeFault is the failure of a call about a volume.
func volumeFault(ctx context.Context, label string, err error) error {
	switch code := sdk.CodeOf(err); {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case code == sdk.CodeNotFound, code == sdk.CodeConflict, code == sdk.CodeNotAllowed, code == sdk.CodeQuotaExceeded:
		// These speak of the volume or its files, and not of the provider's account.
		return &Fault{Provider: label, Err: err}
	default:
		return &Fault{Provider: label, Err: providerCall{label: label, ctx: ctx}.told(err)}
	}
}
