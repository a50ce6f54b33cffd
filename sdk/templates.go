package sdk

import (
	"context"
	"time"
)

// TemplateBuilder is implemented by providers that can make templates of images: root file
// systems that the operator names, with packages installed ahead of need. What they have
// built outlives the process of the plugin.
type TemplateBuilder interface {
	// BuildTemplate builds what the request describes, and returns when instances can be
	// made of it. What is built already is returned as it is. progress is told what
	// happens; an error that it returns ends the build, unless that has ended by the time
	// it is heard.
	//
	// Return CodeInvalidRequest, with the field, for what cannot be built as it is
	// described: an image for another architecture, one that no sandbox can run, or a
	// Dockerfile where none can be built;
	// CodeConnectionFailed where the registry cannot be reached; CodeNotSupported with
	// CapabilityTemplates where the operator has not allowed it.
	BuildTemplate(ctx context.Context, req BuildTemplateRequest, progress func(TemplateProgress) error) (BuiltTemplate, error)

	// ListTemplates returns what was built for this broker and has not been removed, by
	// earlier processes too.
	ListTemplates(ctx context.Context) ([]BuiltTemplate, error)

	// RemoveTemplate says that no instance will be made of an image any more. What only
	// it needs is freed, at the latest when the last instance of it has ended. To remove
	// what does not exist is a success.
	RemoveTemplate(ctx context.Context, image string) error
}

// BuildTemplateRequest describes a template. It has one of From, Rootfs and Dockerfile.
type BuildTemplateRequest struct {
	// Name of the template, for the log.
	Name string
	// From is an image of a registry, such as "docker.io/library/python:3.12-slim".
	From string
	// Rootfs is the absolute path of a directory, or of a tar archive, with a root file
	// system or an image in it.
	Rootfs string
	// Dockerfile is the absolute path of one, and Context that of the directory which it
	// copies from; empty for the one that it is in.
	Dockerfile, Context string
	// BuildArgs are values of its ARGs.
	BuildArgs map[string]string
	// Network is what its RUNs may reach; nil for nothing.
	Network *NetworkPolicy
	// Source is what From, Rootfs or Dockerfile were found to stand for in an earlier build
	// (BuiltTemplate.Source): build of that, whatever they stand for by now, or refuse where
	// that is not to be had any more. Empty for what they stand for now.
	Source string
	// Packages of Python to install, as CheckPackages takes them.
	Packages []string
	// Env is added to the environment of all code in its instances, below what the
	// creation of the instance gives.
	Env map[string]string
	// Start is a command for bash that runs from the start of each instance on; Ready is
	// run again and again until it succeeds, and the instance is ready then. Empty for
	// none.
	Start, Ready string
	// MemoryMB in MiB, and CPUs, of each instance; 0 for what the provider gives others.
	MemoryMB int64
	CPUs     float64
}

// TemplateProgress is one thing that a build does.
type TemplateProgress struct {
	// Step in a few words, such as "pull layer 2 of 5".
	Step string
	// Done and Total are bytes of that step; 0 where nobody knows.
	Done, Total int64
}

// BuiltTemplate is what a build has made.
type BuiltTemplate struct {
	// Name as the request had it.
	Name string
	// Image names what was built, and all that the request said of it:
	// "sha256:" and 64 hexadecimal digits. CreateRequest.Image takes it.
	Image string
	// Source is what From or Rootfs were found to stand for, "sha256:" and 64
	// hexadecimal digits.
	Source string
	// Languages that its instances can run.
	Languages []Language
	// Bytes that its files have together. Templates may share them.
	Bytes int64
	// BuiltAt is when the build ended.
	BuiltAt time.Time
}

// Bounds of what a BuildTemplateRequest says.
const (
	// MaxTemplatePackages is how many packages there may be, MaxTemplateEnv how many
	// variables.
	MaxTemplatePackages = 100
	MaxTemplateEnv      = 100
	// MaxTemplateText is the longest From, Rootfs, Dockerfile, Context, Start or Ready, in bytes.
	MaxTemplateText = 4 << 10
)
