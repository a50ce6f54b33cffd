package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// release is what is made, of what, and where.
type release struct {
	root, bin, out string
	// inputs has the files that go into packages and images beside the programs.
	inputs  string
	version string // as Debian writes it
	arch    string // as Go and Debian write it
	time    time.Time
}

// complete fills in what is not given and makes the directory to write to.
func (r *release) complete() (err error) {
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	r.inputs = filepath.Join(r.root, "cmd", "release")
	if r.bin == "" {
		r.bin = filepath.Join(r.root, "bin")
	}
	if r.out == "" {
		r.out = filepath.Join(r.root, "dist")
	}
	for _, dir := range []*string{&r.bin, &r.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	return os.MkdirAll(r.out, 0o755)
}

// name is that of the tarball, and what others begin with.
func (r *release) name() string { return fmt.Sprintf("sandbox-broker_%s_linux_%s", r.version, r.arch) }

// programs are those of a release, by their paths below bin.
var programs = []string{
	"sandbox-broker", "sandbox-guest", "runsc", "gvisor-bin/gvisor-sentry-prewarmer",
	"plugins/aliyun", "plugins/daytona", "plugins/e2b", "plugins/kubernetes", "plugins/self_managed",
}

// described is a version by git: a tag, how many commits are behind it and the last of
// them; and whether something is not committed.
var described = regexp.MustCompile(`^v?([0-9]+(?:\.[0-9]+)+)(?:-((?:alpha|beta|rc)\.?[0-9]*))?(?:-([0-9]+)-g([0-9a-f]+))?(-dirty)?$`)

// commit is a version by git where there is no tag.
var commit = regexp.MustCompile(`^([0-9a-f]{7,40})(-dirty)?$`)

// versionOf is a version that packages of later commits are newer than, of what git says.
// A pre-release, v1.2.0-rc1 say, is older than what it leads to. Without any tag all are older
// than 0.0.1, in the order of their times.
func versionOf(description string, at time.Time) (string, error) {
	if m := described.FindStringSubmatch(description); m != nil {
		version, behind := m[1], []string{}
		if m[2] != "" {
			version += "~" + m[2]
		}
		if m[3] != "" {
			behind = append(behind, m[3], "g"+m[4])
		}
		if m[5] != "" {
			behind = append(behind, "dirty")
		}
		if len(behind) > 0 {
			version += "+" + strings.Join(behind, ".")
		}
		return version, nil
	}
	if m := commit.FindStringSubmatch(description); m != nil {
		return "0.0.0+" + at.Format("20060102150405") + ".g" + m[1] + strings.Replace(m[2], "-", ".", 1), nil
	}
	return "", fmt.Errorf("the version %q is none that git describes: v1.2.3, v1.2.3-4-gabcdef0 or abcdef0, each with -dirty or without", description)
}

// write makes a file of the release, in one step.
func (r *release) write(name string, content []byte) error {
	path := filepath.Join(r.out, name)
	if err := os.WriteFile(path+".part", content, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
