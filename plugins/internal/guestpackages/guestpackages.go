// Package guestpackages installs packages into sandboxes that have a guest and no network: an
// installer runs in the sandbox, and its connections go through the plugin, to the hosts that
// the operator names. Here are the settings, and what an installation is; which hosts may be
// reached is package egress's, and what the installers are told is package packages'.
package guestpackages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/egress"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The settings that say where packages come from, and the values of the first.
const (
	settingPackages     = "packages"
	settingPackageIndex = "package_index"
	settingPackageHosts = "package_hosts"
	settingWheelDir     = "wheel_dir"
	settingNPMRegistry  = "npm_registry"

	packagesOff = "off"
	packagesOn  = "on"
)

// Settings are those of a provider block.
type Settings struct {
	Packages     string   `config:"packages"`
	PackageIndex string   `config:"package_index"`
	PackageHosts []string `config:"package_hosts"`
	PackageMB    int64    `config:"package_mb"`
	WheelDir     string   `config:"wheel_dir"`
	NPMRegistry  string   `config:"npm_registry"`
}

// On says whether packages may be installed.
func (s Settings) On() bool { return s.Packages != packagesOff }

// WantsNPM says whether JavaScript packages may be installed, where sandboxes have npm.
func (s Settings) WantsNPM() bool { return s.On() && s.NPMRegistry != "" }

// Fields describe the settings.
func Fields() sdk.Schema {
	return sdk.Schema{
		{
			Name: settingPackages, Type: sdk.TypeString, Default: packagesOff, Options: []string{packagesOff, packagesOn},
			Label: "Packages", Description: "Whether agents may install packages into their instances, from the places below. The sandboxes have no network; an installation reaches these hosts through the plugin, and only while it runs.",
		},
		{
			Name: settingPackageIndex, Type: sdk.TypeString, FileOnly: true, Pattern: `https?://.+`,
			Label: "Python index", Description: "A simple index of Python packages, which may be on a private network. It cannot be one that asks for a password.", Placeholder: "https://packages.example.com/simple/",
		},
		{
			Name: settingPackageHosts, Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(100),
			Label: "Package hosts", Description: "Further hosts that an installation may reach, at ports 80 and 443 and on the open Internet: where the files are that an index points at. `*.` before a name stands for all below it.",
		},
		{
			Name: "package_mb", Type: sdk.TypeInteger, Default: 1024, Min: sdk.Bound(1), Max: sdk.Bound(1 << 20),
			Label: "Download (MiB)", Description: "What one installation may receive.",
		},
		{
			Name: settingWheelDir, Type: sdk.TypeString, FileOnly: true, Pattern: `/.*`,
			Label: "Wheels", Description: "A directory on this machine with wheels to install, beside the index or instead of it.", Placeholder: "/var/lib/sandbox-broker/wheels",
		},
		{
			Name: settingNPMRegistry, Type: sdk.TypeString, FileOnly: true, Pattern: `https?://.+`,
			Label: "npm registry", Description: "A registry of JavaScript packages, which may be on a private network. Sandboxes need npm for it.", Placeholder: "https://npm.example.com/",
		},
	}
}

// Validate says what is wrong with the settings. What this user may not look at the broker's
// may: that shows at the start.
func (s Settings) Validate() (found []sdk.FieldError) {
	if !s.On() {
		return nil
	}
	addf := func(field, format string, args ...any) {
		found = append(found, sdk.FieldError{Field: field, Message: sdk.FieldErrorf(sdk.CodeInvalidConfig, field, format, args...).Message})
	}
	if s.PackageIndex == "" && s.WheelDir == "" && s.NPMRegistry == "" {
		addf(settingPackages, "needs to know where packages come from: give %s, %s or %s", settingPackageIndex, settingWheelDir, settingNPMRegistry)
	}
	for setting, text := range map[string]string{settingPackageIndex: s.PackageIndex, settingNPMRegistry: s.NPMRegistry} {
		if text == "" {
			continue
		}
		if _, err := indexURL(setting, text); err != nil {
			addf(setting, "%s", messageOf(err))
		}
	}
	for _, host := range s.PackageHosts {
		if !egress.ValidPattern(host) {
			addf(settingPackageHosts, "has %q, which is neither the name of a host in small letters nor one behind *.", host)
		}
	}
	if s.WheelDir != "" {
		if info, err := os.Stat(s.WheelDir); err != nil && !errors.Is(err, fs.ErrPermission) {
			addf(settingWheelDir, "%s", err)
		} else if err == nil && !info.IsDir() {
			addf(settingWheelDir, "names %s, which is no directory", s.WheelDir)
		}
	}
	return found
}

// Programs are what sandboxes have, by their paths there.
type Programs struct {
	Interpreters map[sdk.Language]string
	NPM          string // empty if there is none
}

// Instance is one that packages are installed into.
type Instance interface {
	// Guest is the way to its guest.
	Guest() *guestclient.Client
	// Programs are what its sandbox has, if that is not what all of them have; ok is false
	// else.
	Programs() (own Programs, ok bool)
	// Installing is held while an installer runs: those of one language write to one
	// directory.
	Installing() *sync.Mutex
	// Owner is the tenant and the ID, for whom connections are counted.
	Owner() (tenant, instanceID string)
	// WithoutResult says what it means that an installation that had begun has ended without
	// a result.
	WithoutResult(ctx context.Context, timeout time.Duration, started time.Time, err error) (sdk.ExecuteResult, error)
}

// Sources are where packages come from, and the way there.
type Sources struct {
	packages.Sources
	egress   *egress.Egress // nil if nothing may be installed
	wheels   *egress.Wheels // nil if there is no directory of them
	programs func() Programs
	settings Settings
}

// Options of Sources. The zero values are those of this machine.
type Options struct {
	// Programs tells what sandboxes have. It may find out more with time.
	Programs func() Programs
	Resolver egress.Resolver
	Dialer   egress.Dialer
	Logger   hclog.Logger
}

// Open makes of the settings what installations need. The caller owes a Close.
func Open(s Settings, o Options) (*Sources, error) {
	from := &Sources{programs: o.Programs, settings: s}
	if !s.On() {
		return from, nil
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Dialer == nil {
		o.Dialer = &net.Dialer{}
	}
	way := egress.Options{
		Hosts: s.PackageHosts, MaxBytes: s.PackageMB << 20,
		Resolver: o.Resolver, Dialer: o.Dialer, Logger: o.Logger,
	}
	var err error
	for setting, into := range map[string]**url.URL{settingPackageIndex: &from.Index, settingNPMRegistry: &from.Registry} {
		text := s.PackageIndex
		if setting == settingNPMRegistry {
			text = s.NPMRegistry
		}
		if text == "" {
			continue
		}
		if *into, err = indexURL(setting, text); err != nil {
			return nil, err
		}
		way.Indexes = append(way.Indexes, *into)
	}
	if s.WheelDir != "" {
		if from.wheels, err = egress.ServeWheels(s.WheelDir); err != nil {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, settingWheelDir, "%w", err)
		}
		from.Wheels = &url.URL{Scheme: "http", Host: egress.WheelHost, Path: "/"}
		way.Internal = map[string]egress.Dialer{egress.WheelHost: from.wheels}
	}
	from.egress = egress.New(way)
	return from, nil
}

func indexURL(setting, text string) (*url.URL, error) {
	// Not what is wrong with it: it may hold a password.
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Hostname() == "", egress.PortOf(u) == 0:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, setting, "is not the URL of an index")
	case u.User != nil:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, setting, "holds a user or a password, which sandboxes would see: put an index without one in front of it")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, setting, "must end with the path")
	}
	return u, nil
}

// Identity is another text when an installation may come to something else: from other
// places, or by other wheels in the directory.
func (from *Sources) Identity() string {
	var wheels time.Time
	if info, err := os.Stat(from.settings.WheelDir); err == nil {
		wheels = info.ModTime()
	}
	return fmt.Sprintf("%q %d", fmt.Sprintf("%+v", from.settings), wheels.UnixNano())
}

// Close ends what serves packages.
func (from *Sources) Close() error {
	if from.wheels == nil {
		return nil
	}
	return from.wheels.Close()
}
