package providertest_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestWrongVolumesAreFound(t *testing.T) {
	// creating changes what is asked of a creation of an instance.
	creating := func(change func(c *capable, req *sdk.CreateRequest)) func(*capable) {
		return func(c *capable) {
			c.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				change(c, &req)
				return c.Provider.Create(ctx, req)
			}
		}
	}
	making := func(change func(req *sdk.CreateVolumeRequest)) func(*capable) {
		return func(c *capable) {
			c.createVolume = func(ctx context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
				change(&req)
				return c.Provider.CreateVolume(ctx, req)
			}
		}
	}
	fresh := func(c *capable) string {
		v, err := c.Provider.CreateVolume(context.Background(), sdk.CreateVolumeRequest{Size: 1})
		if err != nil {
			panic(err)
		}
		return v.ID
	}
	checkMutations(t, map[string]mutation{
		"labels are lost": {among: "volumes/(a volume is listed)", fails: []string{"volumes/a volume is listed with its labels"}, wraps: changing(making(func(req *sdk.CreateVolumeRequest) { req.Labels = nil }))},
		"none is listed": {among: "volumes/(a volume is listed)", fails: []string{"volumes/a volume is listed with its labels"}, wraps: changing(func(c *capable) {
			c.listVolumes = func([]sdk.Volume) []sdk.Volume { return nil }
		})},
		"the key is not looked at": {among: "volumes/(one key)", fails: []string{"volumes/one key makes one volume"}, wraps: changing(making(func(req *sdk.CreateVolumeRequest) { req.IdempotencyKey = "" }))},
		"any size is promised":     {among: "volumes/(a size)", fails: []string{"volumes/a size that cannot be is refused"}, wraps: changing(making(func(req *sdk.CreateVolumeRequest) { req.Size = min(req.Size, 1<<30) }))},
		"nothing is deleted": {among: "volumes/(to delete)", fails: []string{"volumes/to delete one is final, and to delete it again a success"}, wraps: changing(func(c *capable) {
			c.deleteVolume = func(context.Context, string) error { return nil }
		})},
		"a deletion fails the second time": {among: "volumes/(to delete)", fails: []string{"volumes/to delete one is final, and to delete it again a success"}, wraps: changing(func(c *capable) {
			c.deleteVolume = func(ctx context.Context, id string) error {
				list, err := c.Provider.ListVolumes(ctx)
				for _, v := range list {
					if v.ID == id {
						return c.Provider.DeleteVolume(ctx, id)
					}
				}
				return sdk.Errorf(sdk.CodeNotFound, "no such volume: %v", err)
			}
		})},
		"each instance has one of its own": {
			among: "volumes/(what one|files outlive)", fails: []string{"volumes/what one instance writes another one sees", "volumes/files outlive the instance"},
			wraps: changing(creating(func(c *capable, req *sdk.CreateRequest) {
				for i := range req.Volumes {
					req.Volumes[i].VolumeID = fresh(c)
				}
			})),
		},
		"one that is unknown is left out": {among: "volumes/(an unknown)", fails: []string{"volumes/an unknown one is not found by a creation"}, wraps: changing(creating(func(_ *capable, req *sdk.CreateRequest) { req.Volumes = nil }))},
		"one in use is deleted": {among: "volumes/(one that an instance)", fails: []string{"volumes/one that an instance has is not deleted"}, wraps: changing(func(c *capable) {
			c.deleteVolume = func(ctx context.Context, id string) error {
				return forgiving(c.Provider.DeleteVolume(ctx, id), sdk.CodeConflict)
			}
		})},
		"read-only is not obeyed": {among: "volumes/(nothing is written)", fails: []string{"volumes/nothing is written to one that is read-only"}, wraps: changing(creating(func(_ *capable, req *sdk.CreateRequest) {
			for i := range req.Volumes {
				req.Volumes[i].ReadOnly = false
			}
		}))},
		"a copy is empty": {among: "volumes/(a copy)", fails: []string{"volumes/a copy has the files, and is one of its own"}, wraps: changing(making(func(req *sdk.CreateVolumeRequest) { req.From = "" }))},
		"all have the same files": {among: "volumes/(two have)", fails: []string{"volumes/two have nothing in common"}, wraps: changing(func(c *capable) {
			first := ""
			same := func(id string) string {
				if !strings.HasPrefix(id, "volume-") {
					return id
				}
				if first == "" {
					first = id
				}
				return first
			}
			c.writeFile = func(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
				req.InstanceID = same(req.InstanceID)
				return c.Provider.WriteFile(ctx, req, content)
			}
			c.readFile = func(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
				req.InstanceID = same(req.InstanceID)
				return c.Provider.ReadFile(ctx, req)
			}
			c.stat = func(sdk.FileInfo, error) (sdk.FileInfo, error) { return sdk.FileInfo{Path: "/f"}, nil }
		})},
	})
}
