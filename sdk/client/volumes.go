package client

import (
	"context"
	"net/http"
	"time"
)

// CreateVolumeRequest asks for a volume.
type CreateVolumeRequest struct {
	Name      string `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$" patternDescription:"a-z 0-9 _ . -, from a letter or digit to one" doc:"Your name for it. No two of your volumes have the same." example:"models"`
	SizeBytes int64  `json:"size_bytes,omitempty" minimum:"1" doc:"What its files may take together; required unless it is a copy. The provider may round it up, and takes a part for itself." example:"1073741824"`
	Provider  string `json:"provider,omitempty" minLength:"1" maxLength:"64" doc:"A provider by its ID; else the first that has volumes."`
	From      string `json:"from,omitempty" minLength:"1" maxLength:"63" doc:"A volume of yours whose files it begins with. No instance may have that meanwhile."`
}

// Volume is a place for files that outlives instances.
type Volume struct {
	_         struct{}  `additionalProperties:"true"`
	Name      string    `json:"name"`
	Provider  string    `json:"provider"`
	SizeBytes int64     `json:"size_bytes"`
	UsedBytes int64     `json:"used_bytes" doc:"As the provider said it a while ago; 0 where it has not."`
	InUse     bool      `json:"in_use" doc:"An instance has it, or is to have it."`
	From      string    `json:"from,omitempty" doc:"The volume that it was a copy of."`
	CreatedAt time.Time `json:"created_at"`
}

// VolumeList holds the volumes of the tenant, by name.
type VolumeList struct {
	_       struct{} `additionalProperties:"true"`
	Volumes []Volume `json:"volumes" nullable:"false"`
}

// VolumeMount is a volume in an instance.
type VolumeMount struct {
	Name     string `json:"name" minLength:"1" maxLength:"63" doc:"The volume." example:"models"`
	Path     string `json:"path" minLength:"1" maxLength:"255" doc:"Where code finds it: /data, or below /data, /mnt or /workspace." example:"/data"`
	ReadOnly bool   `json:"read_only,omitempty" doc:"Nothing in the instance can change it."`
}

// AdminVolume is a volume of any tenant, or of none.
type AdminVolume struct {
	_ struct{} `additionalProperties:"true"`
	Volume
	ID        string `json:"id"`
	Tenant    string `json:"tenant"`
	Broker    string `json:"broker,omitempty" doc:"The ID of the broker that has it, where there are several."`
	State     string `json:"state" enum:"making,ready,removing" doc:"Values may be added."`
	Ownerless bool   `json:"ownerless" doc:"Its tenant was removed, or the broker has lost what it knew of it. It stays until it is deleted here."`
}

// AdminVolumeList holds the volumes of all tenants.
type AdminVolumeList struct {
	_    struct{}      `additionalProperties:"true"`
	Data []AdminVolume `json:"data" nullable:"false"`
	// Silent are the brokers that have not answered.
	Silent []string `json:"silent,omitempty" doc:"Where there are several brokers: those that did not answer in time, whose part is missing."`
}

const pathVolumes = "/api/v1/volumes"

// volumeFiles begins what takes the place of an instance's ID where a volume is meant.
const volumeFiles = "volume:"

// FilesOf returns what calls about files and archives take in the place of the ID of an
// instance for those of a volume. Paths begin at its root.
func FilesOf(volume string) string { return volumeFiles + volume }

// Volumes are the volumes of the tenant.
type Volumes struct{ client *Client }

// VolumesOf asks a broker about volumes. Their files are asked for as those of instances: FilesOf.
func VolumesOf(c *Client) Volumes { return Volumes{c} }

// Create makes a volume.
func (v Volumes) Create(ctx context.Context, req CreateVolumeRequest) (Volume, error) {
	return ask[Volume](ctx, v.client, Request{Method: post, Path: pathVolumes, Body: req})
}

// List lists the volumes of the tenant.
func (v Volumes) List(ctx context.Context) (VolumeList, error) {
	return ask[VolumeList](ctx, v.client, Request{Method: get, Path: pathVolumes})
}

// Get looks at a volume.
func (v Volumes) Get(ctx context.Context, name string) (Volume, error) {
	return ask[Volume](ctx, v.client, Request{Method: get, Path: below(FilesOf(name))})
}

// Delete deletes a volume with all that is in it.
func (v Volumes) Delete(ctx context.Context, name string) error {
	return v.client.tell(ctx, http.MethodDelete, below(FilesOf(name)), nil)
}

// Volumes lists the volumes of all tenants, and those of none.
func (a Admin) Volumes(ctx context.Context) (AdminVolumeList, error) {
	return ask[AdminVolumeList](ctx, a.client, Request{Method: get, Path: adminPath("volumes")})
}

// DeleteVolume deletes a volume by its ID in that list.
func (a Admin) DeleteVolume(ctx context.Context, id string) error {
	return a.client.tell(ctx, http.MethodDelete, adminPath("volumes", id), nil)
}
