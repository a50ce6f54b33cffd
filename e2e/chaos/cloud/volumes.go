package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Volume is a place for files that outlives instances.
type Volume struct {
	ID        string            `json:"id"`
	Labels    map[string]string `json:"labels"`
	Size      int64             `json:"size"`
	Used      int64             `json:"used"`
	CreatedAt time.Time         `json:"created_at"`
}

// VolumeRequest is the body of POST /allot.
type VolumeRequest struct {
	Labels map[string]string `json:"labels"`
	Size   int64             `json:"size"`
	// From is another one whose files it begins with.
	From string `json:"from,omitempty"`
	// Key makes it idempotent, unless the cloud ignores keys.
	Key string `json:"key"`
}

// Mount is a volume in an instance.
type Mount struct {
	Volume   string `json:"volume"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// MaxVolume is the largest volume, in bytes.
const MaxVolume = 1 << 40

// volume is one with what the cloud knows of it.
type volume struct {
	Volume
	key string
	in  *inside
}

func (c *Cloud) handleVolumes() {
	c.mux.HandleFunc("POST /allot", handle(c, "allot", c.allot))
	c.mux.HandleFunc("POST /free", handle(c, "free", c.free))
	c.mux.HandleFunc("POST /volumes", handle(c, "volumes", c.listVolumes))
}

func (c *Cloud) allot(r *http.Request, req VolumeRequest) (Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.volumes {
		if v.key == req.Key && req.Key != "" && !c.lies.NoKeys {
			return v.Volume, nil
		}
	}
	in := newInside()
	if req.From != "" {
		from := c.volumes[req.From]
		switch {
		case from == nil:
			return Volume{}, refusal{http.StatusNotFound, "from: no such volume"}
		case c.mounted(req.From):
			return Volume{}, refusal{http.StatusConflict, "from: an instance has it"}
		case req.Size < from.Size:
			return Volume{}, refusal{http.StatusUnprocessableEntity, "size: it is smaller than the other one"}
		}
		in = from.in.copied()
	}
	if req.Size <= 0 || req.Size > MaxVolume {
		return Volume{}, refusal{http.StatusUnprocessableEntity, "size: there is no volume of that size"}
	}
	in.ofVolume = true
	c.made++
	v := Volume{ID: fmt.Sprintf("cloudvol-%06d", c.made), Labels: req.Labels, Size: req.Size, CreatedAt: time.Now()}
	c.volumes[v.ID] = &volume{v, req.Key, in}
	c.note(Effect{Kind: Allotted, Volume: v, Process: r.Header.Get(ProcessHeader)})
	return v, nil
}

// mounted reports whether an instance has a volume. The caller holds mu.
func (c *Cloud) mounted(id string) bool {
	for _, in := range c.insides {
		if slices.ContainsFunc(in.mounts, func(m Mount) bool { return m.Volume == id }) {
			return true
		}
	}
	return false
}

func (c *Cloud) free(r *http.Request, req NamedRequest) (struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.volumes[req.ID]
	if v == nil {
		return struct{}{}, nil
	}
	if c.mounted(req.ID) {
		return struct{}{}, refusal{http.StatusConflict, "an instance has the volume"}
	}
	delete(c.volumes, req.ID)
	c.note(Effect{Kind: Freed, Volume: v.Volume, Process: r.Header.Get(ProcessHeader)})
	return struct{}{}, nil
}

func (c *Cloud) listVolumes(_ *http.Request, labels map[string]string) ([]Volume, error) {
	list := []Volume{}
	for _, v := range c.Volumes() {
		if v.Labels[sdk.LabelBroker] == labels[sdk.LabelBroker] {
			list = append(list, v)
		}
	}
	return list, nil
}

// Volumes returns what there is.
func (c *Cloud) Volumes() (all []Volume) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.volumes)) {
		v := c.volumes[id].Volume
		for _, file := range c.volumes[id].in.files {
			v.Used += int64(len(file.Content))
		}
		all = append(all, v)
	}
	return all
}

// mount finds the volumes of a new instance. The caller holds mu.
func (c *Cloud) mount(mounts []Mount) error {
	for _, m := range mounts {
		if c.volumes[m.Volume] == nil {
			return refusal{http.StatusNotFound, "volumes: no such volume"}
		}
	}
	return nil
}

// files are those among which a path of an instance, or of a volume, is, and its name there.
// The caller holds mu.
func (c *Cloud) files(in *inside, name string) (files map[string]File, at string, readOnly bool) {
	if in.ofVolume {
		return in.files, path.Join("/", name), false
	}
	for _, m := range in.mounts {
		if rest, below := strings.CutPrefix(name, m.Path+"/"); below && c.volumes[m.Volume] != nil {
			return c.volumes[m.Volume].in.files, "/" + rest, m.ReadOnly
		}
	}
	return in.files, name, false
}
