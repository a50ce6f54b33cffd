package provider

import (
	"context"
	"net/url"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/egress"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/packages"
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
	npm    string         // inside the sandbox; empty if there is none

	resolver egress.Resolver
	dialer   egress.Dialer
}

// setUpPackages makes of the settings what installations need.
func (p *Provider) setUpPackages(ctx context.Context) error {
	s := p.settings
	if s.Packages == packagesOff {
		return nil
	}
	from := &p.packages
	o := egress.Options{
		Hosts: s.PackageHosts, MaxBytes: s.PackageMB << 20,
		Resolver: from.resolver, Dialer: from.dialer, Logger: p.logger,
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
		if from.npm, _, err = p.runtime.Interpreter(ctx, "npm"); err != nil {
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

func (s packageSources) close() error {
	if s.wheels == nil {
		return nil
	}
	return s.wheels.Close()
}
