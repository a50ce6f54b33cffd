package remote

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	pathVolumes      = "/api/v1/volumes"
	pathAdminVolumes = "/api/admin/sandbox/volumes"
)

// Volume works with volumes.
type Volume struct {
	Ls     VolumeLs     `cmd:"" default:"withargs" help:"List your volumes."`
	Create VolumeCreate `cmd:"" help:"Make a volume."`
	Rm     VolumeRm     `cmd:"" help:"Delete volumes, with all that is in them."`
	Cp     VolumeCp     `cmd:"" help:"Copy files and directories to or from a volume."`
}

// Help is shown below the usage.
func (*Volume) Help() string {
	return `A volume has files that outlive instances, and that several instances can have at a time:
sandbox-broker create --volume NAME:PATH

Examples:
  sandbox-broker volume create models --size-mb 2048
  sandbox-broker volume cp model.bin models:
  sandbox-broker create --session train --volume models:/data
  sandbox-broker create --session serve --volume models:/data:ro`
}

// listedVolume is a volume of a list; what follows Volume is in those of administrators alone.
type listedVolume struct {
	client.Volume
	ID        string `json:"id"`
	Tenant    string `json:"tenant"`
	State     string `json:"state"`
	Ownerless bool   `json:"ownerless"`
}

func volumeList(now time.Time, tenants bool) listing[listedVolume] {
	name := func(v listedVolume) string { return v.Name }
	columns := []table.Column[listedVolume]{
		{Head: "NAME", Cell: name},
		{Head: "PROVIDER", Cell: func(v listedVolume) string { return v.Provider }},
		{Head: "SIZE", Cell: func(v listedVolume) string { return size(v.SizeBytes) }},
		{Head: "USED", Cell: func(v listedVolume) string { return size(v.UsedBytes) }},
		{Head: "IN USE", Cell: func(v listedVolume) string { return yesNo(v.InUse) }},
		{Head: "AGE", Cell: func(v listedVolume) string { return table.Duration(now.Sub(v.CreatedAt)) }},
	}
	if tenants {
		name = func(v listedVolume) string { return v.ID }
		columns = append([]table.Column[listedVolume]{
			{Head: "ID", Cell: name},
			{Head: "TENANT", Cell: func(v listedVolume) string { return v.Tenant }},
			{Head: "OWNERLESS", Cell: func(v listedVolume) string { return yesNo(v.Ownerless) }},
		}, columns...)
	}
	return listing[listedVolume]{columns: columns, name: name}
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// VolumeLs lists volumes.
type VolumeLs struct {
	AllTenants bool `name:"all-tenants" short:"a" help:"Those of all tenants, and of none; takes an administrator's token."`
	Quiet      bool `short:"q" help:"The same as --output name."`
	Output
	Connection
}

// Help is shown below the usage.
func (*VolumeLs) Help() string {
	return `Examples:
  sandbox-broker volume ls
  sandbox-broker volume ls --all-tenants --context admin`
}

// Run lists.
func (c *VolumeLs) Run(ctx context.Context, console *Console) error {
	if c.Quiet {
		c.Output.Output = "name"
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	path := pathVolumes
	if c.AllTenants {
		path = pathAdminVolumes
	}
	answer, list, err := answered[struct {
		Volumes []listedVolume `json:"volumes"`
		Data    []listedVolume `json:"data"`
	}](ctx, broker, client.Request{Path: path})
	if err != nil {
		return err
	}
	return volumeList(time.Now(), c.AllTenants).print(console, c.Output.Output, append(list.Volumes, list.Data...), answer)
}

// VolumeCreate makes a volume.
type VolumeCreate struct {
	Name     string `arg:"" help:"Your name for it."`
	SizeMB   int64  `name:"size-mb" placeholder:"MIB" help:"What its files may take together, in MiB; needed unless --from is there."`
	From     string `placeholder:"VOLUME" help:"A volume of yours whose files it begins with. No instance may have that meanwhile."`
	Provider string `short:"p" placeholder:"ID" help:"The provider; else the first that has volumes." complete:"providers"`
	Output
	Connection
}

// Help is shown below the usage.
func (*VolumeCreate) Help() string {
	return `Prints its name, or with --output json all of it.

Examples:
  sandbox-broker volume create models --size-mb 2048
  sandbox-broker volume create models-before --from models`
}

// Run makes it.
func (c *VolumeCreate) Run(ctx context.Context, console *Console) error {
	if c.SizeMB < 0 || c.SizeMB == 0 && c.From == "" || c.SizeMB > 1<<40 {
		return usageErrorf("--size-mb must be there, and more than 0")
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	stop := startProgress(console, func() string { return "making a volume" })
	answer, made, err := answered[listedVolume](ctx, broker, client.Request{Method: "POST", Path: pathVolumes, Body: client.CreateVolumeRequest{
		Name: c.Name, SizeBytes: c.SizeMB << 20, From: c.From, Provider: c.Provider,
	}})
	stop()
	if err != nil {
		return err
	}
	as := c.Output.Output
	if as == "table" {
		as = "name"
	}
	return volumeList(time.Now(), false).print(console, as, []listedVolume{made}, answer)
}

// VolumeRm deletes volumes.
type VolumeRm struct {
	Volume     []string `arg:"" help:"Volumes, by their names."`
	AllTenants bool     `name:"all-tenants" short:"a" help:"They may be anybody's: takes an administrator's token, and IDs as ls --all-tenants has them."`
	Connection
}

// Help is shown below the usage.
func (*VolumeRm) Help() string {
	return `Prints the name of each volume that is gone. One that an instance has stays. What was in a
volume is gone for good.

Examples:
  sandbox-broker volume rm models-before
  sandbox-broker volume rm --all-tenants --context admin k3v9x2m4q8w1z5y7b6n0`
}

// Run deletes one after the other, and goes on behind one that cannot be.
func (c *VolumeRm) Run(ctx context.Context, console *Console) error {
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	var failed []error
	for _, name := range c.Volume {
		if c.AllTenants {
			err = broker.Admin().DeleteVolume(ctx, name)
		} else {
			err = client.VolumesOf(broker).Delete(ctx, name)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if _, err := fmt.Fprintln(console.Out, table.Printable(name)); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// VolumeCp copies between this machine and a volume.
type VolumeCp struct {
	From string `arg:"" help:"A file or directory here, VOLUME:PATH, or - for standard input."`
	To   string `arg:"" help:"A file or directory here, VOLUME:PATH, or - for standard output."`
	Tar  bool   `help:"What goes through - is a tar stream, of a directory or to unpack in one."`
	Connection
}

// Help is shown below the usage.
func (*VolumeCp) Help() string {
	return `As cp does with an instance, whether or not an instance has the volume. Paths begin at the
root of the volume.

Examples:
  sandbox-broker volume cp model.bin models:v2/
  sandbox-broker volume cp models:/ - --tar | tar -t`
}

// Run copies one way or the other.
func (c *VolumeCp) Run(ctx context.Context, console *Console) error {
	cp := Cp{From: c.From, To: c.To, Tar: c.Tar, Connection: c.Connection}
	return cp.run(ctx, console, func(_ context.Context, _ *client.Client, name string) (string, error) {
		return client.FilesOf(name), nil
	})
}

// mountsOf reads the volumes of a new instance.
func mountsOf(words []string) (mounts []client.VolumeMount, err error) {
	for _, word := range words {
		name, path, ok := strings.Cut(word, ":")
		path, readOnly := strings.CutSuffix(path, ":ro")
		if !ok || name == "" || path == "" || url.PathEscape(name) != name {
			return nil, usageErrorf("--volume %s: write NAME:PATH, or NAME:PATH:ro", word)
		}
		mounts = append(mounts, client.VolumeMount{Name: name, Path: path, ReadOnly: readOnly})
	}
	return mounts, nil
}
