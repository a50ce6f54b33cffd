package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// maintainer is who packages name.
const maintainer = "The maintainers of sandbox-broker <maintainers@sandbox-broker.example>"

// debianPackage is one package: the description of it below debian, what stands in that for
// names in ${}, and the programs in it.
type debianPackage struct {
	description string
	names       map[string]string
	programs    []string
}

var debianPackages = []debianPackage{
	{"broker", nil, []string{broker}},
	{"self-managed", nil, []string{"plugins/self_managed", "sandbox-guest", "runsc", "gvisor-bin/gvisor-sentry-prewarmer"}},
	{"cloud", map[string]string{"PLUGIN": "e2b", "TITLE": "Sandboxes of E2B"}, []string{"plugins/e2b"}},
	{"cloud", map[string]string{"PLUGIN": "daytona", "TITLE": "Sandboxes of Daytona"}, []string{"plugins/daytona"}},
	{"cloud", map[string]string{"PLUGIN": "aliyun", "TITLE": "Sandboxes of Aliyun AgentRun"}, []string{"plugins/aliyun"}},
	{"cloud", map[string]string{"PLUGIN": "kubernetes", "TITLE": "Pods of a Kubernetes cluster"}, []string{"plugins/kubernetes"}},
}

// packages makes all Debian packages.
func (r *release) packages() error {
	for _, p := range debianPackages {
		if err := r.pack(p); err != nil {
			return fmt.Errorf("package %s %s: %w", p.description, p.names["PLUGIN"], err)
		}
	}
	return nil
}

func (r *release) pack(p debianPackage) error {
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	info, err := r.describe(p)
	if err != nil {
		return err
	}
	for name, content := range map[string]func() ([]byte, error){
		"copyright":     r.copyright,
		"changelog.gz":  func() ([]byte, error) { return r.changelog(info.Name) },
		"notices":       func() ([]byte, error) { return r.notices(p.programs) },
		"sbom.cdx.json": func() ([]byte, error) { return r.bom(info.Name, p.programs) },
	} {
		text, err := content()
		if err != nil {
			return err
		}
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: path, Destination: "/usr/share/doc/" + info.Name + "/" + name,
			FileInfo: &files.ContentFileInfo{Mode: 0o644},
		})
	}
	if slices.Contains(p.programs, broker) {
		completions, err := r.completions(work)
		if err != nil {
			return err
		}
		info.Contents = append(info.Contents, completions...)
	}
	for _, c := range info.Contents {
		if c.FileInfo == nil {
			c.FileInfo = &files.ContentFileInfo{}
		}
		c.FileInfo.Owner, c.FileInfo.Group, c.FileInfo.MTime = "root", "root", r.time
	}
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	var content bytes.Buffer
	if err := packager.Package(info, &content); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("%s_%s_%s.deb", info.Name, r.version, r.arch), content.Bytes())
}

// broker is the program that completes its own command lines.
const broker = "sandbox-broker"

// completions are the scripts for shells, where Debian's shells look for them.
func (r *release) completions(work string) (scripts []*files.Content, err error) {
	for shell, destination := range map[string]string{
		"bash": "/usr/share/bash-completion/completions/sandbox-broker",
		"zsh":  "/usr/share/zsh/vendor-completions/_sandbox-broker",
		"fish": "/usr/share/fish/vendor_completions.d/sandbox-broker.fish",
	} {
		script, err := exec.Command(filepath.Join(r.bin, broker), "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("completion for %s: %w", shell, err)
		}
		path := filepath.Join(work, "completion."+shell)
		if err := os.WriteFile(path, script, 0o644); err != nil {
			return nil, err
		}
		scripts = append(scripts, &files.Content{Source: path, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: 0o644}})
	}
	return scripts, nil
}

// describe reads the description of a package.
func (r *release) describe(p debianPackage) (*nfpm.Info, error) {
	text, err := os.ReadFile(filepath.Join(r.inputs, "debian", p.description, "nfpm.yaml"))
	if err != nil {
		return nil, err
	}
	names := map[string]string{
		"ROOT": r.root, "BIN": r.bin, "HERE": filepath.Join(r.inputs, "debian"), "VERSION": r.version, "ARCH": r.arch, "MAINTAINER": maintainer,
	}
	var unknown []string
	expanded := os.Expand(string(text), func(name string) string {
		if value, ok := p.names[name]; ok {
			return value
		}
		value, ok := names[name]
		if !ok {
			unknown = append(unknown, name)
		}
		return value
	})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("nfpm.yaml has names that nobody knows: %s", strings.Join(unknown, ", "))
	}
	config, err := nfpm.Parse(strings.NewReader(expanded))
	if err != nil {
		return nil, err
	}
	info, err := config.Get("deb")
	if err != nil {
		return nil, err
	}
	info.MTime = r.time
	return nfpm.WithDefaults(info), nil
}

// copyright is the file of that name in the form that Debian's tools read.
func (r *release) copyright() ([]byte, error) {
	return []byte(`Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: sandbox-broker
Comment:
 The modules that the programs are made of, with their versions, are in sbom.cdx.json beside
 this file, and their licenses in notices.

Files: *
Copyright: ` + r.time.Format("2006") + ` the authors of sandbox-broker
License: Apache-2.0

License: Apache-2.0
 The text of this license is in /usr/share/common-licenses/Apache-2.0.
`), nil
}

// changelog is the file of that name in the form that Debian's tools read. It has the one
// version that the package is of: what changes for users is not told by packages.
func (r *release) changelog(name string) ([]byte, error) {
	text := fmt.Sprintf("%s (%s) unstable; urgency=medium\n\n  * What changes for those who use it is in CHANGELOG.md of the broker.\n\n -- %s  %s\n",
		name, r.version, maintainer, r.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zip.Write([]byte(text)); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
