package provider

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/internal/api"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// settings are those of a provider block.
type settings struct {
	APIKey         string        `config:"api_key"`
	OrganizationID string        `config:"organization_id"`
	APIURL         string        `config:"api_url"`
	Target         string        `config:"target"`
	Snapshot       string        `config:"snapshot"`
	Image          string        `config:"image"`
	CPUs           int64         `config:"cpus"`
	MemoryGB       int64         `config:"memory_gb"`
	DiskGB         int64         `config:"disk_gb"`
	User           string        `config:"user"`
	PauseBy        string        `config:"pause_by"`
	AutoStop       time.Duration `config:"auto_stop"`
	AutoArchive    time.Duration `config:"auto_archive"`
	KeepStopped    time.Duration `config:"keep_stopped"`
	CreateTimeout  time.Duration `config:"create_timeout"`
	BlockNetwork   bool          `config:"block_network"`
	AllowedNets    []string      `config:"allowed_networks"`
	Packages       bool          `config:"packages"`
	MaxRetries     int64         `config:"max_retries"`
}

// What pausing an instance does to its sandbox.
const (
	byPause   = "pause"
	byStop    = "stop"
	byArchive = "archive"
)

func schema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "api_key", Type: sdk.TypeString, Required: true, Secret: true, Min: sdk.Bound(1), Label: "API key",
			Description: "A key of your organization that may write and delete sandboxes; or, with organization_id, a token of a user.", Placeholder: `env("DAYTONA_API_KEY")`,
		},
		{
			Name: "organization_id", Type: sdk.TypeString, Label: "Organization", Pattern: `[A-Za-z0-9-]*`, Default: "",
			Description: "The organization that a user's token is to act for. A key belongs to one already.",
		},
		{
			Name: "api_url", Type: sdk.TypeString, FileOnly: true, Default: "https://app.daytona.io/api", Pattern: `https?://[^/?#@\s]+(/[^?#\s]*)?`,
			Label: "API URL", Description: "Where the API is: another one for Daytona on machines of your own.",
		},
		{
			Name: "target", Type: sdk.TypeString, Default: "", Pattern: `[A-Za-z0-9_.-]*`, Label: "Target",
			Description: "The region where sandboxes are to be. Without it, that of your organization.",
		},
		{
			Name: "snapshot", Type: sdk.TypeString, Default: "", Pattern: `[A-Za-z0-9_.:/-]*`, Label: "Snapshot",
			Description: "The snapshot of Daytona that sandboxes are made from; it has their size too. Without it, and without image, Daytona's own. It must have python3; node for JavaScript.",
		},
		{
			Name: "image", Type: sdk.TypeString, Default: "", Pattern: `[A-Za-z0-9_.:/@-]*`, Label: "Image",
			Description: "An image that Daytona is to build a sandbox of. The first one takes minutes; a snapshot does not.", Placeholder: "python:3.12",
		},
		{Name: "cpus", Type: sdk.TypeInteger, Default: 0, Min: sdk.Bound(0), Max: sdk.Bound(64), Label: "CPUs", Description: "CPUs of a sandbox that is made from image. 0 leaves it to Daytona."},
		{Name: "memory_gb", Type: sdk.TypeInteger, Default: 0, Min: sdk.Bound(0), Max: sdk.Bound(512), Label: "Memory", Description: "Memory of a sandbox that is made from image, in GiB."},
		{Name: "disk_gb", Type: sdk.TypeInteger, Default: 0, Min: sdk.Bound(0), Max: sdk.Bound(1024), Label: "Disk", Description: "Disk of a sandbox that is made from image, in GiB."},
		{
			Name: "user", Type: sdk.TypeString, Default: "", Pattern: `([a-z_][a-z0-9_-]*)?`, Label: "User",
			Description: "The user of the sandbox that everything belongs to. Without it, that of the snapshot.",
		},
		{
			Name: "pause_by", Type: sdk.TypeString, Default: byPause, Options: []string{byPause, byStop, byArchive}, Label: "Pause by",
			Description: "What a pause does: `pause` keeps memory and processes, where the class of sandboxes can; `stop` keeps the files, and ends processes, commands and contexts; `archive` moves the files to cheaper storage besides, from which they come back more slowly.",
		},
		{
			Name: "auto_stop", Type: sdk.TypeDuration, Default: "15m", Min: sdk.Bound(60), Max: sdk.Bound(24 * 3600), Label: "Auto-stop",
			Description: "How long a sandbox goes on when this broker is gone: so long it is paid for. As long as the broker runs, it is kept alive.",
		},
		{
			Name: "auto_archive", Type: sdk.TypeDuration, Default: "0s", Min: sdk.Bound(0), Max: sdk.Bound(30 * 24 * 3600), Label: "Auto-archive",
			Description: "After how long Daytona archives a sandbox that is stopped. 0 leaves it to Daytona: seven days.",
		},
		{
			Name: "keep_stopped", Type: sdk.TypeDuration, Default: "0s", Min: sdk.Bound(0), Max: sdk.Bound(365 * 24 * 3600), Label: "Keep stopped",
			Description: "How long Daytona keeps a sandbox that is stopped. 0 has it deleted at once, so that a broker that is gone leaves nothing behind; where pauses stop sandboxes it must be as long as a pause may be.",
		},
		{
			Name: "create_timeout", Type: sdk.TypeDuration, Default: "5m", Min: sdk.Bound(10), Max: sdk.Bound(3600), Label: "Creation timeout",
			Description: "How long a sandbox may take until it runs. An image that is built for the first time takes minutes.",
		},
		{Name: "block_network", Type: sdk.TypeBoolean, Default: false, Label: "Block the network", Description: "Whether sandboxes reach nothing at all."},
		{
			Name: "allowed_networks", Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(10), Label: "Allowed networks",
			Description: "If given, sandboxes reach these and nothing else: networks such as 203.0.113.0/24.",
		},
		{Name: "packages", Type: sdk.TypeBoolean, Default: true, Label: "Packages", Description: "Whether packages of Python may be installed in sandboxes, by their own pip."},
		{Name: "max_retries", Type: sdk.TypeInteger, Default: 3, Min: sdk.Bound(0), Max: sdk.Bound(10), Label: "Retries", Description: "How often a call of the API is repeated that may succeed later."},
	}
}

// minutes are what Daytona counts in: never fewer than were asked for.
func minutes(d time.Duration) int64 { return int64((d + time.Minute - 1) / time.Minute) }

// order is what every sandbox is made with.
func (s settings) order() api.NewSandbox {
	o := api.NewSandbox{
		Snapshot: s.Snapshot, User: s.User, Target: s.Target, NetworkBlockAll: s.BlockNetwork, NetworkAllowList: strings.Join(s.AllowedNets, ","),
		AutoStopInterval: minutes(s.AutoStop), AutoArchiveInterval: minutes(s.AutoArchive), AutoDeleteInterval: minutes(s.KeepStopped),
	}
	if s.Image != "" {
		o.BuildInfo = &api.BuildInfo{DockerfileContent: "FROM " + s.Image + "\n"}
		o.CPU, o.Memory, o.Disk = s.CPUs, s.MemoryGB, s.DiskGB
	}
	return o
}

// Validate implements sdk.SettingsValidator.
func (p *Provider) Validate(_ context.Context, given sdk.Settings) []sdk.FieldError {
	var s settings
	if err := given.Decode(&s); err != nil {
		return []sdk.FieldError{{Message: err.Error()}}
	}
	var problems []sdk.FieldError
	add := func(field, format string, args ...any) {
		problems = append(problems, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if s.Snapshot != "" && s.Image != "" {
		add("image", "cannot be given with snapshot: a sandbox is made from one of them")
	}
	if s.Image != "" && (strings.HasSuffix(s.Image, ":latest") || !strings.ContainsAny(s.Image, ":@")) {
		add("image", "must have a tag that is not latest, or a digest: Daytona refuses others")
	}
	if s.Image == "" && (s.CPUs > 0 || s.MemoryGB > 0 || s.DiskGB > 0) {
		add("cpus", "belongs to image, as memory_gb and disk_gb do: a snapshot has a size already")
	}
	if s.PauseBy != byPause && s.KeepStopped == 0 {
		add("keep_stopped", "must be as long as a pause may be where pause_by is %s: Daytona would delete what is paused", s.PauseBy)
	}
	if s.BlockNetwork && len(s.AllowedNets) > 0 {
		add("allowed_networks", "allows what is not reached: block_network is true")
	}
	for _, n := range s.AllowedNets {
		if prefix, err := netip.ParsePrefix(n); err != nil || !prefix.Addr().Is4() {
			add("allowed_networks", "has %.100q, which is no network of IPv4 such as 203.0.113.0/24", n)
		}
	}
	return problems
}
