package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/broker/volume"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Volumes does what the routes promise of volumes; volume.Service is it. It lends a volume
// by its name, for its files.
type Volumes interface {
	lending.Instances
	Create(ctx context.Context, who tenant.Tenant, req volume.CreateRequest) (volume.Info, error)
	Get(who tenant.Tenant, name string) (volume.Info, error)
	ListEverywhere(ctx context.Context, who tenant.Tenant) ([]volume.Info, error)
	Delete(ctx context.Context, who tenant.Tenant, name string) error
	Attach(who tenant.Tenant, mounts []volume.Mount) (label string, volumes []instance.Volume, release func(), err error)
	AllEverywhere(ctx context.Context) ([]volume.Info, error)
	DeleteAny(ctx context.Context, id string) error
}

const (
	pathVolumes      = "/api/v1/volumes"
	pathAdminVolumes = pathAdmin + "/volumes"
)

type volumeRoutes struct{ volumes Volumes }

func (h volumeRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: pathVolumes, ID: "createVolume", Tag: tagVolumes,
		Summary: "Create a volume",
		Details: "Empty, or with the files of another one that no instance has. It takes its size from your quota until it is deleted.",
		Resumes: true,
		Success: []int{http.StatusCreated},
		Codes:   append(providerCodes(), sdk.CodeConflict, sdk.CodeNotAllowed, sdk.CodeNotFound, sdk.CodeInvalidRequest),
	}, func(ctx context.Context, c rest.Call[client.CreateVolumeRequest]) (int, client.Volume, error) {
		info, err := h.volumes.Create(ctx, c.Tenant, volume.CreateRequest{
			Name: c.Body.Name, Size: c.Body.SizeBytes, Provider: c.Body.Provider, From: c.Body.From, Key: c.Key,
		})
		return http.StatusCreated, volumeOf(info), err
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathVolumes, ID: "listVolumes", Tag: tagVolumes,
		Summary: "List your volumes",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, client.VolumeList, error) {
		list := client.VolumeList{Volumes: []client.Volume{}}
		all, err := h.volumes.ListEverywhere(ctx, c.Tenant)
		if err != nil {
			return 0, client.VolumeList{}, err
		}
		for _, info := range all {
			list.Volumes = append(list.Volumes, volumeOf(info))
		}
		return http.StatusOK, list, nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathVolumes + "/{volume}", ID: "getVolume", Tag: tagVolumes,
		Summary: "Look at a volume",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeNotFound},
	}, func(_ context.Context, c rest.Call[rest.None]) (int, client.Volume, error) {
		info, err := h.volumes.Get(c.Tenant, c.Path["volume"])
		return http.StatusOK, volumeOf(info), err
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: pathVolumes + "/{volume}", ID: "deleteVolume", Tag: tagVolumes,
		Summary: "Delete a volume",
		Details: "With all that is in it. One that an instance has is a conflict. After an error the broker goes on to delete it.",
		Success: []int{http.StatusNoContent}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
		return http.StatusNoContent, rest.None{}, h.volumes.Delete(ctx, c.Tenant, c.Path["volume"])
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: pathAdminVolumes, ID: "adminListVolumes", Tag: tagAdmin, Admin: true,
		Summary: "List the volumes of all tenants",
		Details: "Those too that belong to no tenant any more, since it was removed or since the broker has lost what it knew of them. Nothing but a deletion here ends these.",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, func(ctx context.Context, _ rest.Call[rest.None]) (int, client.AdminVolumeList, error) {
		list := client.AdminVolumeList{Data: []client.AdminVolume{}}
		all, err := h.volumes.AllEverywhere(ctx)
		if list.Silent, err = silent(err); err != nil {
			return 0, client.AdminVolumeList{}, err
		}
		for _, info := range all {
			list.Data = append(list.Data, client.AdminVolume{
				Volume: volumeOf(info), ID: info.ID, Tenant: info.Tenant, Broker: info.Broker, State: string(info.State), Ownerless: info.Ownerless,
			})
		}
		return http.StatusOK, list, nil
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: pathAdminVolumes + "/{volume}", ID: "adminDeleteVolume", Tag: tagAdmin, Admin: true,
		Summary: "Delete a volume of any tenant, or of none",
		Details: "By its ID, with all that is in it. One that an instance has is a conflict.",
		Success: []int{http.StatusNoContent}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
		return http.StatusNoContent, rest.None{}, h.volumes.DeleteAny(ctx, c.Path["volume"])
	})
}

// attach finds the volumes of a new instance, and the provider that it so belongs to.
func (h instanceRoutes) attach(who tenant.Tenant, req client.CreateInstanceRequest) (provider string, volumes []instance.Volume, release func(), err error) {
	if len(req.Volumes) == 0 {
		return req.Provider, nil, func() {}, nil
	}
	if h.volumes == nil {
		return "", nil, nil, sdk.NotSupported("", sdk.CapabilityVolumes)
	}
	var mounts []volume.Mount
	for _, m := range req.Volumes {
		mounts = append(mounts, volume.Mount{Name: m.Name, Path: m.Path, ReadOnly: m.ReadOnly})
	}
	provider, volumes, release, err = h.volumes.Attach(who, mounts)
	if err == nil && req.Provider != "" && req.Provider != provider {
		release()
		err = sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider", "must be that of the volumes, %q", provider)
	}
	return provider, volumes, release, err
}

func volumeOf(info volume.Info) client.Volume {
	return client.Volume{
		Name: info.Name, Provider: info.Provider, SizeBytes: info.Size, UsedBytes: info.Used, InUse: info.InUse,
		From: info.From, CreatedAt: info.CreatedAt.UTC(),
	}
}

func mountsOf(volumes []instance.Volume) (mounts []client.VolumeMount) {
	for _, v := range volumes {
		mounts = append(mounts, client.VolumeMount{Name: v.Name, Path: v.Path, ReadOnly: v.ReadOnly})
	}
	return mounts
}
