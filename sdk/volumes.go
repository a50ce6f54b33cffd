package sdk

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// VolumeKeeper is implemented by providers that keep files beyond the instances that use
// them. A volume is data of a tenant: nothing but DeleteVolume removes one, neither the
// end of an instance nor that of the plugin or of its machine.
//
// A provider that has CapabilityFiles too takes the ID of a volume wherever Files,
// FileSearcher, FileModeSetter and Archiver take that of an instance, whether or not an
// instance has the volume. Paths begin at the volume itself then: "/" is its root, and
// relative paths begin there. No symbolic link leads out of it. What is written belongs to
// the user that code runs as.
//
// Where the operator's machine or account has no volumes, all methods but ListVolumes and
// DeleteVolume return CodeNotSupported with CapabilityVolumes, and say what to do.
type VolumeKeeper interface {
	// CreateVolume makes a volume, empty or as a copy of another one. Codes mean what
	// they mean for Provider.Create. CodeQuotaExceeded says that there is no room,
	// CodeConflict with the field "from" that the other one is being written to,
	// CodeNotFound with that field that there is none.
	CreateVolume(ctx context.Context, req CreateVolumeRequest) (Volume, error)
	// DeleteVolume removes a volume with all that is in it. Deleting one that does not
	// exist is a success. One that an instance has is refused with CodeConflict, and
	// stays as it is.
	DeleteVolume(ctx context.Context, volumeID string) error
	// ListVolumes returns every volume that carries the broker ID given to Configure,
	// and no other.
	ListVolumes(ctx context.Context) ([]Volume, error)
}

// CreateVolumeRequest asks for a volume.
type CreateVolumeRequest struct {
	// Labels to keep with the volume and to return from ListVolumes: at least
	// LabelTenant, LabelVolume and LabelBroker.
	Labels map[string]string
	// Size in bytes that its files may take together. The provider may round it up, or
	// take a part of it for itself; it refuses one that it cannot give with
	// CodeInvalidRequest and the field "size".
	Size int64
	// From is the ID of another volume, whose files the new one begins with; empty for
	// none. They are those of one moment. Size is at least that of the other one.
	From string
	// IdempotencyKey names this creation: a second one with the same key returns the
	// volume that the first has made.
	IdempotencyKey string
}

// LabelVolume is the broker's own name for a volume.
const LabelVolume = "volume"

// Volume is a place for files that outlives instances.
type Volume struct {
	// ID is the provider's own name for it, opaque to the broker. No instance has the
	// same one.
	ID     string
	Labels map[string]string
	// Size in bytes, and how much of that is in use; 0 where that is not known.
	Size, Used int64
	CreatedAt  time.Time
}

// VolumeMount is a volume in an instance. Any number of instances may have the same one:
// each sees what the others write. The files belong to the user that code runs as; no
// device node, and no set-user-ID bit, has an effect in it.
type VolumeMount struct {
	VolumeID string
	// Path where code finds it: absolute, clean, below /data, /mnt or /workspace, or
	// /data itself. None is below that of another one. A provider may refuse one
	// that it cannot serve with CodeInvalidRequest and the field "volumes".
	Path string
	// ReadOnly lets nothing in the instance change the volume.
	ReadOnly bool
}

// MaxVolumeMounts is how many volumes an instance may have.
const MaxVolumeMounts = 16

// volumePlaces are where volumes may be in an instance; those with a slash at the end are
// no place themselves.
var volumePlaces = []string{"/data", "/mnt/", "/workspace/"}

// CheckVolumeMounts finds what is wrong with the volumes of an instance, as VolumeMount
// says it. The error is CodeInvalidRequest with the field "volumes".
func CheckVolumeMounts(mounts []VolumeMount) error {
	refused := func(format string, args ...any) error {
		return FieldErrorf(CodeInvalidRequest, "volumes", format, args...)
	}
	if len(mounts) > MaxVolumeMounts {
		return refused("has %d volumes; at most %d are allowed", len(mounts), MaxVolumeMounts)
	}
	for i, m := range mounts {
		inPlace := slices.ContainsFunc(volumePlaces, func(place string) bool {
			return m.Path == place || strings.HasPrefix(m.Path, strings.TrimSuffix(place, "/")+"/")
		})
		switch {
		case m.VolumeID == "":
			return refused("must name each volume")
		case !volumePath.MatchString(m.Path) || path.Clean(m.Path) != m.Path || len(m.Path) > maxVolumePath:
			return refused("the path %.100q must be absolute, without . and .., of at most %d of A-Z a-z 0-9 _ . - and /", m.Path, maxVolumePath)
		case !inPlace:
			return refused("the path %q must be /data, or below /data, /mnt or /workspace", m.Path)
		}
		for _, other := range mounts[:i] {
			switch {
			case other.VolumeID == m.VolumeID:
				return refused("has one volume twice")
			case strings.HasPrefix(m.Path+"/", other.Path+"/") || strings.HasPrefix(other.Path+"/", m.Path+"/"):
				return refused("the path %q is below another one, or the same", m.Path)
			}
		}
	}
	return nil
}

const maxVolumePath = 255 // bytes

var volumePath = regexp.MustCompile(`^(/[A-Za-z0-9_.-]+)+$`)
