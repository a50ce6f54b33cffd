package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Template is what instances can be made of beside what the providers have themselves: the
// root file system of an image, with packages.
type Template struct {
	// Name is the block's label.
	Name string
	// From is an image of a registry. One of this, Rootfs and Dockerfile is given.
	From string `config:"from"`
	// Rootfs is the absolute path of a directory or an archive.
	Rootfs string `config:"rootfs"`
	// Dockerfile is the absolute path of one, and Context that of what it copies from; "" for
	// its directory.
	Dockerfile string `config:"dockerfile"`
	Context    string `config:"context"`
	// BuildArgs are values of its ARGs, and Network is what its RUNs may reach; nil for nothing.
	BuildArgs map[string]string `config:"build_args"`
	Network   *Network          `config:"-"`
	// Packages of Python.
	Packages []string `config:"packages"`
	// Env is added to the environment of all code.
	Env map[string]string `config:"env"`
	// Start and Ready are commands for bash; "" for none.
	Start string `config:"start"`
	Ready string `config:"ready"`
	// MemoryMB, in MiB, and CPUs of each instance; 0 for those of the provider.
	MemoryMB int64   `config:"memory_mb"`
	CPUs     float64 `config:"cpus"`
	// Providers on which it is built, by label; empty means all that can.
	Providers []string `config:"providers"`
	// Tenants that may use it; empty means all.
	Tenants []string `config:"tenants"`
}

// For reports whether a tenant may use the template.
func (t Template) For(tenant string) bool {
	return len(t.Tenants) == 0 || slices.Contains(t.Tenants, tenant)
}

// On reports whether it is built on a provider.
func (t Template) On(provider string) bool {
	return len(t.Providers) == 0 || slices.Contains(t.Providers, provider)
}

// templateName is the form of a template's name, which is that of those of providers.
var templateName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

// CheckTemplateName says why no template block can have a name, or nil.
func CheckTemplateName(name string) error {
	if !templateName.MatchString(name) {
		return fmt.Errorf("must be of the form %s", templateName)
	}
	return nil
}

func templateSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "from", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxTemplateText),
			Description: `An image of a registry, such as "docker.io/library/python:3.12-slim". What the tag stands for is looked up once and then kept; ` + "`sandbox-broker template build` looks it up anew.",
		},
		{
			Name: "rootfs", Type: sdk.TypeString, FileOnly: true, Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxTemplateText),
			Description: "In place of from: a directory with a root file system or an image in the OCI layout, or a tar archive of a root file system or as `docker save` writes it. Relative to this file's directory.",
		},
		{
			Name: "dockerfile", Type: sdk.TypeString, FileOnly: true, Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxTemplateText),
			Description: "In place of from: a Dockerfile, which is built without Docker. Each RUN is run in a sandbox. Relative to this file's directory. [Templates](templates.md#dockerfiles) says which instructions it may have.",
		},
		{
			Name: "context", Type: sdk.TypeString, FileOnly: true, Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxTemplateText),
			Description: "The directory that COPY copies from; the one of the Dockerfile unless given. Relative to this file's directory.",
		},
		{
			Name: "build_args", Type: sdk.TypeMap, FileOnly: true, Max: sdk.Bound(sdk.MaxTemplateEnv),
			Description: "Values of the Dockerfile's ARGs. They are no secrets: what is run has them, and leaves them where it likes.",
		},
		{
			Name: "packages", Type: sdk.TypeList, Max: sdk.Bound(sdk.MaxTemplatePackages),
			Description: `Packages of Python to install when the template is built, such as "numpy==2.1". The provider says where they come from.`,
		},
		{
			Name: "env", Type: sdk.TypeMap, Secret: true, Max: sdk.Bound(sdk.MaxTemplateEnv),
			Description: "Variables for all code in its instances, over those of the image. What the creator of an instance gives comes over these.",
		},
		{
			Name: "start", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxTemplateText),
			Description: "A command for bash that runs from the start of each instance on, such as a server.",
		},
		{
			Name: "ready", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxTemplateText),
			Description: "A command for bash that is run again and again until it succeeds: the instance is ready then.",
		},
		{
			Name: "memory_mb", Type: sdk.TypeInteger, Min: sdk.Bound(64), Max: sdk.Bound(1 << 20),
			Description: "MiB of memory of each instance, in place of the provider's own setting.",
		},
		{
			Name: "cpus", Type: sdk.TypeNumber, Min: sdk.Bound(0.1), Max: sdk.Bound(256),
			Description: "CPU time of each instance, in place of the provider's own setting.",
		},
		{
			Name: "providers", Type: sdk.TypeList, Min: sdk.Bound(1),
			Description: "The labels of the providers on which it is built; leave it out for all that can build templates.",
		},
		{
			Name: "tenants", Type: sdk.TypeList, Min: sdk.Bound(1),
			Description: "The names of the tenants that may use it; leave it out to allow all.",
		},
	}
}

// templateReader reads template blocks.
type templateReader struct {
	parser             *parser
	providers, tenants []string
}

func (r *templateReader) read(block *hclsyntax.Block) Template {
	t := Template{Name: block.Labels[0]}
	s := r.parser.readSection(block.Body, templateSchema(), block.DefRange())
	r.parser.decode(s, &t, block.DefRange())
	r.source(block, s, &t)
	r.network(block, s, &t)
	for _, list := range []struct {
		name, what   string
		items, known []string
	}{{"providers", "provider", t.Providers, r.providers}, {"tenants", "tenant", t.Tenants, r.tenants}} {
		a, ok := s.setting(list.name)
		if !ok {
			continue
		}
		for i, label := range list.items {
			switch {
			case slices.Contains(list.items[:i], label):
				r.parser.fail(a.itemRange(i), fmt.Sprintf("%s named twice", capitalize(list.what)), "Remove one of the two.")
			case !slices.Contains(list.known, label):
				r.parser.fail(a.itemRange(i), "Unknown "+list.what, fmt.Sprintf("This is not the label of a %s block. %s", list.what, suggest(label, list.known)))
			}
		}
	}
	return t
}

// source checks what a template is made of.
func (r *templateReader) source(block *hclsyntax.Block, s section, t *Template) {
	var given []attribute
	for _, name := range []string{"from", "rootfs", "dockerfile"} {
		if a, ok := s.setting(name); ok {
			given = append(given, a)
		}
	}
	switch {
	case len(given) > 1:
		r.parser.fail(given[1].nameRange, "Two sources", "A template is made of an image, of a root file system or of a Dockerfile: give one of from, rootfs and dockerfile.")
	case len(given) == 0:
		r.parser.fail(block.DefRange(), "Nothing to make it of", "A template is made of an image, of a root file system or of a Dockerfile: give from, rootfs or dockerfile.")
	}
	for name, path := range map[string]*string{"rootfs": &t.Rootfs, "dockerfile": &t.Dockerfile, "context": &t.Context} {
		if a, ok := s.setting(name); ok && *path != "" && !filepath.IsAbs(*path) {
			*path = absolute(r.parser.documents[a.nameRange.Filename].dir(), *path)
		}
	}
	for _, name := range []string{"context", "build_args"} {
		a, ok := s.setting(name)
		if _, has := s.setting("dockerfile"); ok && !has {
			r.parser.fail(a.nameRange, "No Dockerfile", name+" is for a template that has a dockerfile.")
		}
	}
}

// network reads what the RUNs of a Dockerfile may reach.
func (r *templateReader) network(block *hclsyntax.Block, s section, t *Template) {
	rest := *block
	rest.Body = &hclsyntax.Body{Attributes: block.Body.Attributes}
	for _, inner := range block.Body.Blocks {
		_, has := s.setting("dockerfile")
		switch {
		case inner.Type != blockNetwork:
			rest.Body.Blocks = append(rest.Body.Blocks, inner)
		case t.Network != nil:
			r.parser.fail(inner.TypeRange, "Block given twice", "A template has one block network.")
		case !r.parser.checkLabels(inner, blockKind{}): // reported
		case !has:
			r.parser.fail(inner.TypeRange, "No Dockerfile", "A block network is for a template that has a dockerfile: it is what its RUNs may reach. What instances may reach is said by the block network of their tenant.")
		default:
			network := r.parser.readNetwork(inner)
			t.Network = &network
		}
	}
	r.parser.refuseBlocks(&rest, templateSchema())
}
