package providertest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func volumeCases() []Case {
	const group = "volumes"
	commands, files := []sdk.Capability{sdk.CapabilityCommands}, []sdk.Capability{sdk.CapabilityFiles}
	return needing([]Case{
		{Group: group, Name: "a volume is listed with its labels", run: volumeIsListed},
		{Group: group, Name: "one key makes one volume", run: volumeKeyIsUsedOnce},
		{Group: group, Name: "a size that cannot be is refused", run: volumeSizeIsRefused},
		{Group: group, Name: "to delete one is final, and to delete it again a success", run: volumeIsDeleted},
		{Group: group, Name: "what one instance writes another one sees", run: volumeIsShared, needs: commands},
		{Group: group, Name: "files outlive the instance", run: volumeOutlivesInstance, needs: commands},
		{Group: group, Name: "one that an instance has is not deleted", run: volumeInUseStays, needs: commands},
		{Group: group, Name: "nothing is written to one that is read-only", run: volumeIsReadOnly, needs: commands},
		{Group: group, Name: "an unknown one is not found by a creation", run: volumeUnknownToCreate},
		{Group: group, Name: "its files are there without an instance", run: volumeHasFiles, needs: files},
		{Group: group, Name: "what the files API writes code can change", run: volumeFilesAreCodes, needs: append(files, commands...)},
		{Group: group, Name: "no path and no link leads out of it", run: volumeIsNotLeft, needs: append(files, commands...)},
		{Group: group, Name: "two have nothing in common", run: volumesAreApart, needs: files},
		{Group: group, Name: "a copy has the files, and is one of its own", run: volumeIsCopied, needs: files},
		{Group: group, Name: "the files of an unknown one are not found", run: volumeUnknownToFiles, needs: files},
	}, sdk.CapabilityVolumes)
}

// volumeBytes is large enough for a file system of its own, and small enough to be made often.
const volumeBytes = 32 << 20

// volumePath is where cases have a volume.
const volumePath = "/workspace/shared"

func (c *scene) tryVolume(req sdk.CreateVolumeRequest) (made sdk.Volume, err error) {
	if req.Labels == nil {
		req.Labels = map[string]string{sdk.LabelTenant: "providertest", sdk.LabelVolume: randomWord(), sdk.LabelBroker: c.brokerID}
	}
	if req.Size == 0 {
		req.Size = volumeBytes
	}
	err = c.call("CreateVolume", func(ctx context.Context) (err error) {
		made, err = c.CreateVolume(ctx, req)
		return err
	})
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeNotSupported && e.Capability == sdk.CapabilityVolumes {
		c.skip("with these settings there are no volumes: %s", e.Message)
	}
	return made, err
}

// volume makes one that ends with the case, after its instances.
func (c *scene) volume(req sdk.CreateVolumeRequest) sdk.Volume {
	v, err := c.tryVolume(req)
	c.must(err, "create a volume")
	c.later(func() {
		if c.stopped {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.suite.within(callTimeout))
		defer cancel()
		if err := c.DeleteVolume(ctx, v.ID); err != nil {
			c.note("delete the volume %s at the end: %v", v.ID, err)
		}
	})
	return v
}

// mounting makes an instance that has a volume.
func (c *scene) mounting(v sdk.Volume, readOnly bool) (instance, error) {
	c.someLanguage()
	req := c.createRequest(c.language)
	req.Volumes = []sdk.VolumeMount{{VolumeID: v.ID, Path: volumePath, ReadOnly: readOnly}}
	return c.tryCreate(req)
}

func (c *scene) having(v sdk.Volume) instance {
	in, err := c.mounting(v, false)
	c.must(err, "create an instance with a volume")
	return in
}

// says runs a line of shell in the directory of the workspace.
func (in instance) says(line string) string {
	commands := in.commands()
	_, out := commands.follow(commands.shell(line))
	return strings.TrimSpace(out.stdout.String())
}

// filesOf are those of a volume without an instance.
func (c *scene) filesOf(v sdk.Volume) files { return c.withID(v.ID).files() }

func (c *scene) listedVolume(id string) (sdk.Volume, bool) {
	list, err := c.ListVolumes(c.ctx)
	c.must(err, "list the volumes")
	i := slices.IndexFunc(list, func(v sdk.Volume) bool { return v.ID == id })
	if i < 0 {
		return sdk.Volume{}, false
	}
	return list[i], true
}

// "ListVolumes returns every volume"; "Labels to keep with the volume and to return from
// ListVolumes". (VolumeKeeper)
func volumeIsListed(c *scene) {
	labels := map[string]string{sdk.LabelTenant: "t", sdk.LabelVolume: randomWord(), sdk.LabelBroker: c.brokerID}
	v := c.volume(sdk.CreateVolumeRequest{Labels: labels})
	c.check(v.Size >= volumeBytes, "a volume of %d bytes has %d", volumeBytes, v.Size)
	listed, there := c.listedVolume(v.ID)
	c.check(there, "the volume is not listed")
	for name, value := range labels {
		equal(c, listed.Labels[name], value, "the label %s", name)
	}
}

// "a second one with the same key returns the volume that the first has made"
// (CreateVolumeRequest)
func volumeKeyIsUsedOnce(c *scene) {
	key := randomWord()
	first := c.volume(sdk.CreateVolumeRequest{IdempotencyKey: key})
	again, err := c.tryVolume(sdk.CreateVolumeRequest{IdempotencyKey: key})
	c.must(err, "create the volume again")
	equal(c, again.ID, first.ID, "the ID of the same volume")
}

// "it refuses one that it cannot give with CodeInvalidRequest and the field "size""
// (CreateVolumeRequest)
func volumeSizeIsRefused(c *scene) {
	_, err := c.tryVolume(sdk.CreateVolumeRequest{Size: 1 << 62})
	c.refused(err, "a volume of 4 EiB", sdk.CodeInvalidRequest, sdk.CodeQuotaExceeded)
}

// "Deleting one that does not exist is a success." (VolumeKeeper)
func volumeIsDeleted(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	for range 2 {
		c.must(c.call("DeleteVolume", func(ctx context.Context) error { return c.DeleteVolume(ctx, v.ID) }), "delete the volume")
	}
	_, there := c.listedVolume(v.ID)
	c.check(!there, "a volume is listed that was deleted")
}

// "each sees what the others write" (VolumeMount)
func volumeIsShared(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	one, other := c.having(v), c.having(v)
	one.says("echo one > shared/f")
	equal(c, other.says("cat shared/f; echo two >> shared/f"), "one", "what the other instance reads")
	equal(c, one.says("cat shared/f"), "one\ntwo", "what was added meanwhile")
}

// "nothing but DeleteVolume removes one" (VolumeKeeper)
func volumeOutlivesInstance(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	first := c.having(v)
	first.says("mkdir shared/d; echo kept > shared/d/f")
	c.destroy(first.ID)
	_, there := c.listedVolume(v.ID)
	c.check(there, "the volume has ended with its instance")
	equal(c, c.having(v).says("cat shared/d/f"), "kept", "what the next instance reads")
}

// "One that an instance has is refused with CodeConflict, and stays as it is."
// (VolumeKeeper.DeleteVolume)
func volumeInUseStays(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	in := c.having(v)
	in.says("echo kept > shared/f")
	c.refused(c.call("DeleteVolume", func(ctx context.Context) error { return c.DeleteVolume(ctx, v.ID) }), "to delete a volume in use", sdk.CodeConflict)
	equal(c, in.says("cat shared/f"), "kept", "what is read after that")
	c.destroy(in.ID)
	c.must(c.call("DeleteVolume", func(ctx context.Context) error { return c.DeleteVolume(ctx, v.ID) }), "delete the volume afterwards")
}

// "ReadOnly lets nothing in the instance change the volume." (VolumeMount)
func volumeIsReadOnly(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	writer := c.having(v)
	writer.says("echo kept > shared/f")
	reader, err := c.mounting(v, true)
	if sdk.CodeOf(err) == sdk.CodeInvalidRequest {
		c.skip("no volume is read-only here: %v", err)
	}
	c.must(err, "create an instance with a volume that is read-only")
	reader.says("echo changed > shared/f; echo new > shared/g; rm -f shared/f; mv shared/f shared/h; chmod 000 shared/f")
	equal(c, reader.says("ls shared; cat shared/f"), "f\nkept", "what is there afterwards")
}

// "Return CodeNotFound with the field "volumes" for one that does not exist."
// (CreateRequest)
func volumeUnknownToCreate(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{}) // or there are none here
	c.must(c.DeleteVolume(c.ctx, v.ID), "delete the volume")
	_, err := c.mounting(v, false)
	c.refused(err, "an instance with a volume that does not exist", sdk.CodeNotFound)
}

// "takes the ID of a volume wherever Files … take that of an instance"; "relative paths
// begin there" (VolumeKeeper)
func volumeHasFiles(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	of := c.filesOf(v)
	of.write("f", "first")
	of.holds("/f", "first")
	of.write("/f", "second")
	of.holds("f", "second")
	equal(c, of.stat("f").Path, "/f", "the path of a file")
}

// "What is written belongs to the user that code runs as." (VolumeKeeper)
func volumeFilesAreCodes(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	c.filesOf(v).write("f", "of the API")
	in := c.having(v)
	equal(c, in.says("cat shared/f; echo changed > shared/f && echo new > shared/g"), "of the API", "what code reads")
	c.filesOf(v).holds("f", "changed\n")
	c.filesOf(v).holds("g", "new\n")
}

// "No symbolic link leads out of it." (VolumeKeeper)
func volumeIsNotLeft(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	in := c.having(v)
	in.says("cd shared; ln -s / root; ln -s ../../../../../../../../.. up; ln -s /etc/passwd passwd")
	of := c.filesOf(v)
	for _, path := range []string{"root/etc/passwd", "up/etc/passwd", "passwd", "../../../../../../../../etc/passwd", "/etc/passwd"} {
		_, err := of.tryRead(sdk.ReadFileRequest{Path: path})
		c.check(err != nil, "%s was read by way of a volume", path)
	}
}

func volumesAreApart(c *scene) {
	one, other := c.volume(sdk.CreateVolumeRequest{}), c.volume(sdk.CreateVolumeRequest{})
	c.check(one.ID != other.ID, "two volumes have one ID")
	c.filesOf(one).write("f", "x")
	c.filesOf(other).isAbsent("f")
}

// "whose files the new one begins with" (CreateVolumeRequest)
func volumeIsCopied(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	c.filesOf(v).write("f", "first")
	copied := c.volume(sdk.CreateVolumeRequest{From: v.ID})
	c.filesOf(v).write("f", "second")
	c.filesOf(copied).holds("f", "first")
	c.filesOf(copied).write("g", "x")
	c.filesOf(v).isAbsent("g")
	_, err := c.tryVolume(sdk.CreateVolumeRequest{From: "unknown" + randomWord()})
	c.refused(err, "a copy of a volume that does not exist", sdk.CodeNotFound)
}

func volumeUnknownToFiles(c *scene) {
	v := c.volume(sdk.CreateVolumeRequest{})
	c.must(c.DeleteVolume(c.ctx, v.ID), "delete the volume")
	_, err := c.filesOf(v).tryRead(sdk.ReadFileRequest{Path: "f"})
	c.refused(err, "a file of a volume that does not exist", sdk.CodeNotFound)
}
