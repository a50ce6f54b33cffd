package provider

import (
	"context"
	"net/url"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/egress"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The settings that say where packages come from, and the values of the first.
const (
	settingPackages     = "packages"
	settingPackageIndex = "package_index"
	settingPackageHosts = "package_hosts"
	settingPackageMB    = "package_mb"
	settingWheelDir     = "wheel_dir"
	settingNPMRegistry  = "npm_registry"

	packagesOff = "off"
	packagesOn  = "on"
)

// packageSources are where packages come from, and the way there.
type packageSources struct {
	packages.Sources
	egress *egress.Egress // nil if nothing may be installed
	wheels *egress.Wheels // nil if there is no directory of them
	// Inside the sandbox; empty if there is none.
	npm          string
	interpreters interpreters

	resolver egress.Resolver
	dialer   egress.Dialer
}

// setUp makes of the settings what installations need.
func (from *packageSources) setUp(ctx context.Context, s settings, runtime sandboxRuntime, found interpreters, logger hclog.Logger) error {
	from.interpreters = found
	if s.Packages == packagesOff {
		return nil
	}
	o := egress.Options{
		Hosts: s.PackageHosts, MaxBytes: s.PackageMB << 20,
		Resolver: from.resolver, Dialer: from.dialer, Logger: logger,
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
			return err
		}
		o.Indexes = append(o.Indexes, *into)
	}
	if from.Registry != nil {
		if from.npm, _, err = runtime.Interpreter(ctx, "npm"); err != nil {
			return err
		}
	}
	if s.WheelDir != "" {
		if from.wheels, err = egress.ServeWheels(s.WheelDir); err != nil {
			return sdk.FieldErrorf(sdk.CodeInvalidConfig, settingWheelDir, "%w", err)
		}
		from.Wheels = &url.URL{Scheme: "http", Host: egress.WheelHost, Path: "/"}
		o.Internal = map[string]egress.Dialer{egress.WheelHost: from.wheels}
	}
	from.egress = egress.New(o)
	return nil
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

// close ends what serves packages.
func (from *packageSources) close() error {
	if from.wheels == nil {
		return nil
	}
	return from.wheels.Close()
}
