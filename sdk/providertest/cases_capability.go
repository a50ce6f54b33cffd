package providertest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// everyCapability lists those of the SDK.
func everyCapability() []sdk.Capability {
	// To pause and to release is one call with to pause.
	all := []sdk.Capability{sdk.CapabilityArtifacts, sdk.CapabilityPauseReleases}
	for _, a := range capabilityCalls() {
		all = append(all, a.capability)
	}
	return all
}

// capabilityCall makes the calls of a capability on an instance.
type capabilityCall struct {
	capability sdk.Capability
	calls      map[string]func(ctx context.Context, s *session, instance string) error
}

func capabilityCases() []Case {
	var cases []Case
	for _, a := range capabilityCalls() {
		cases = append(cases, Case{
			Group: "capabilities", Name: string(a.capability) + " is there if it is claimed, and else refused",
			run: func(c *scene) { honest(c, a) },
		})
	}
	return cases
}

// "the broker refuses the others with CodeNotSupported" (package sdk): a provider
// that lacks a capability says so itself when it is asked all the same. One that
// claims it has the calls: they look for the instance first.
func honest(c *scene, a capabilityCall) {
	claimed := slices.Contains(c.Describe().Capabilities, a.capability)
	id := "unknown" + randomWord()
	if !claimed {
		id = c.instance().ID
	}
	for name, call := range a.calls {
		err := c.call(name, func(ctx context.Context) error { return call(ctx, c.session, id) })
		switch code := sdk.CodeOf(err); {
		case !claimed:
			c.refused(err, name+", which is not claimed,", sdk.CodeNotSupported)
		case code == sdk.CodeNotSupported && !slices.Contains(ofTheMachine, a.capability):
			c.fail("%s is claimed, and refused as not supported: %v", name, err)
		case err == nil && !succeedsAnyhow[name]:
			c.fail("%s of an instance that does not exist succeeded", name)
		}
	}
}

// ofTheMachine are the capabilities that the operator, the machine or the account may lack though
// the provider has them.
var ofTheMachine = []sdk.Capability{sdk.CapabilityPackages, sdk.CapabilityVolumes, sdk.CapabilitySnapshots, sdk.CapabilityTemplates}

// succeedsAnyhow are the calls that look for no instance, or for which one that is not there
// is a success.
var succeedsAnyhow = map[string]bool{
	"DeleteVolume": true, "ListVolumes": true, "DeleteContext": true, "CheckPackages": true, "DeleteSnapshot": true, "ListSnapshots": true,
	"ListTemplates": true, "RemoveTemplate": true, "ListOf": true, "Release": true,
}

func capabilityCalls() []capabilityCall {
	type call = func(ctx context.Context, s *session, instance string) error
	return []capabilityCall{
		{sdk.CapabilityInterrupt, map[string]call{
			"Interrupt": func(ctx context.Context, s *session, id string) error { return s.Interrupt(ctx, id, "e") },
		}},
		{sdk.CapabilityContexts, map[string]call{
			"CreateContext": func(ctx context.Context, s *session, id string) error {
				_, err := s.CreateContext(ctx, sdk.CreateContextRequest{InstanceID: id, Language: s.Describe().Languages[0]})
				return err
			},
			"ListContexts":   func(ctx context.Context, s *session, id string) error { _, err := s.ListContexts(ctx, id); return err },
			"RestartContext": func(ctx context.Context, s *session, id string) error { return s.RestartContext(ctx, id, "c") },
			"DeleteContext":  func(ctx context.Context, s *session, id string) error { return s.DeleteContext(ctx, id, "c") },
		}},
		{sdk.CapabilityCommands, map[string]call{
			"StartCommand": func(ctx context.Context, s *session, id string) error {
				_, err := s.StartCommand(ctx, sdk.CommandRequest{InstanceID: id, Argv: []string{"true"}, KeepOutput: 1})
				return err
			},
			"ListCommands": func(ctx context.Context, s *session, id string) error { _, err := s.ListCommands(ctx, id); return err },
			"ReadCommand": func(ctx context.Context, s *session, id string) error {
				_, err := s.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: "c"}, func(sdk.CommandOutput) error { return nil })
				return err
			},
			"WriteCommand": func(ctx context.Context, s *session, id string) error { return s.WriteCommand(ctx, id, "c", nil, true) },
			"ResizeCommand": func(ctx context.Context, s *session, id string) error {
				return s.ResizeCommand(ctx, id, "c", sdk.TerminalSize{Rows: 24, Columns: 80})
			},
			"SignalCommand": func(ctx context.Context, s *session, id string) error {
				return s.SignalCommand(ctx, id, "c", "SIGTERM")
			},
		}},
		{sdk.CapabilityFiles, map[string]call{
			"StatFile": func(ctx context.Context, s *session, id string) error { _, err := s.StatFile(ctx, id, "."); return err },
			"ListFiles": func(ctx context.Context, s *session, id string) error {
				_, err := s.ListFiles(ctx, sdk.ListFilesRequest{InstanceID: id, Path: ".", Depth: 1, Limit: 1}, func([]sdk.FileInfo) error { return nil })
				return err
			},
			"ReadFile": func(ctx context.Context, s *session, id string) error {
				_, content, err := s.ReadFile(ctx, sdk.ReadFileRequest{InstanceID: id, Path: "f"})
				return closed(content, err)
			},
			"WriteFile": func(ctx context.Context, s *session, id string) error {
				_, err := s.WriteFile(ctx, sdk.WriteFileRequest{InstanceID: id, Path: "f"}, strings.NewReader("x"))
				return err
			},
			"MakeDirectory": func(ctx context.Context, s *session, id string) error {
				_, err := s.MakeDirectory(ctx, id, "d", 0o755)
				return err
			},
			"MoveFile": func(ctx context.Context, s *session, id string) error {
				_, err := s.MoveFile(ctx, sdk.MoveFileRequest{InstanceID: id, From: "a", To: "b"})
				return err
			},
			"CopyFile": func(ctx context.Context, s *session, id string) error {
				_, err := s.CopyFile(ctx, sdk.MoveFileRequest{InstanceID: id, From: "a", To: "b"})
				return err
			},
			"RemoveFile": func(ctx context.Context, s *session, id string) error { return s.RemoveFile(ctx, id, "f", false) },
		}},
		{sdk.CapabilityFileSearch, map[string]call{
			"SearchFiles": func(ctx context.Context, s *session, id string) error {
				_, err := s.SearchFiles(ctx, sdk.SearchFilesRequest{InstanceID: id, Path: ".", Pattern: "x", Limit: 1}, func([]sdk.FileMatch) error { return nil })
				return err
			},
			"ReplaceInFiles": func(ctx context.Context, s *session, id string) error {
				_, err := s.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{InstanceID: id, Paths: []string{"f"}, Old: "x", New: "y"})
				return err
			},
		}},
		{sdk.CapabilityFileWatch, map[string]call{
			"WatchFiles": func(ctx context.Context, s *session, id string) error {
				return s.WatchFiles(ctx, sdk.WatchFilesRequest{InstanceID: id, Path: "."}, func() error { return errors.New("it watches") }, func([]sdk.FileChange) error { return nil })
			},
		}},
		{sdk.CapabilityFileMode, map[string]call{
			"SetFileMode": func(ctx context.Context, s *session, id string) error {
				_, err := s.SetFileMode(ctx, id, "f", 0o644)
				return err
			},
		}},
		{sdk.CapabilityArchives, map[string]call{
			"ReadArchive": func(ctx context.Context, s *session, id string) error {
				return closed(s.ReadArchive(ctx, sdk.ReadArchiveRequest{InstanceID: id, Directory: "."}))
			},
			"WriteArchive": func(ctx context.Context, s *session, id string) error {
				_, err := s.WriteArchive(ctx, id, ".", strings.NewReader(""))
				return err
			},
		}},
		{sdk.CapabilityPorts, map[string]call{
			"DialPort": func(ctx context.Context, s *session, id string) error {
				conn, err := s.DialPort(ctx, id, closedPort)
				return closed(conn, err)
			},
		}},
		{sdk.CapabilityPause, map[string]call{
			"Pause":  func(ctx context.Context, s *session, id string) error { return s.Pause(ctx, id) },
			"Resume": func(ctx context.Context, s *session, id string) error { return s.Resume(ctx, id) },
		}},
		{sdk.CapabilitySetTTL, map[string]call{
			"SetTTL": func(ctx context.Context, s *session, id string) error {
				_, err := s.SetTTL(ctx, id, time.Minute)
				return err
			},
		}},
		{sdk.CapabilityMetrics, map[string]call{
			"InstanceMetrics": func(ctx context.Context, s *session, id string) error {
				_, err := s.InstanceMetrics(ctx, id)
				return err
			},
		}},
		{sdk.CapabilityNetwork, map[string]call{
			"SetNetwork": func(ctx context.Context, s *session, id string) error {
				return s.SetNetwork(ctx, id, sdk.NetworkPolicy{})
			},
		}},
		{sdk.CapabilityAdoption, map[string]call{
			"ListOf": func(ctx context.Context, s *session, _ string) error {
				_, err := s.ListOf(ctx, "unknown"+randomWord())
				return err
			},
			"Adopt":   func(ctx context.Context, s *session, id string) error { return s.Adopt(ctx, id, s.brokerID) },
			"Release": func(ctx context.Context, s *session, id string) error { return s.Release(ctx, id) },
		}},
		{sdk.CapabilityPackages, map[string]call{
			"CheckPackages": func(ctx context.Context, s *session, _ string) error {
				return s.CheckPackages(ctx, s.Describe().Languages[0], []string{"x"})
			},
			"InstallPackages": func(ctx context.Context, s *session, id string) error {
				_, err := s.InstallPackages(ctx, sdk.InstallPackagesRequest{
					InstanceID: id, Language: s.Describe().Languages[0], Requirements: []string{"x"}, Timeout: time.Minute, OutputLimit: 1,
				}, newHeard())
				return err
			},
		}},
		{sdk.CapabilityVolumes, map[string]call{
			"CreateVolume": func(ctx context.Context, s *session, id string) error {
				_, err := s.CreateVolume(ctx, sdk.CreateVolumeRequest{Size: volumeBytes, From: id})
				return err
			},
			"DeleteVolume": func(ctx context.Context, s *session, id string) error { return s.DeleteVolume(ctx, id) },
			"ListVolumes":  func(ctx context.Context, s *session, _ string) error { _, err := s.ListVolumes(ctx); return err },
		}},
		{sdk.CapabilitySnapshots, map[string]call{
			"Snapshot": func(ctx context.Context, s *session, id string) error {
				_, err := s.Snapshot(ctx, sdk.SnapshotRequest{InstanceID: id, IdempotencyKey: randomWord(), Key: snapshotKey(), Transient: true})
				return err
			},
			"DeleteSnapshot": func(ctx context.Context, s *session, id string) error { return s.DeleteSnapshot(ctx, id) },
			"ListSnapshots":  func(ctx context.Context, s *session, _ string) error { _, err := s.ListSnapshots(ctx); return err },
		}},
		{sdk.CapabilityTemplates, map[string]call{
			"BuildTemplate": func(ctx context.Context, s *session, _ string) error {
				_, err := s.BuildTemplate(ctx, sdk.BuildTemplateRequest{Name: "t", Rootfs: "/no/such/directory"}, func(sdk.TemplateProgress) error { return nil })
				return err
			},
			"ListTemplates": func(ctx context.Context, s *session, _ string) error {
				_, err := s.ListTemplates(ctx)
				return err
			},
			"RemoveTemplate": func(ctx context.Context, s *session, _ string) error {
				return s.RemoveTemplate(ctx, "sha256:"+strings.Repeat("0", 64))
			},
		}},
	}
}

// closed closes what a call opened, and passes its error on.
func closed(opened io.Closer, err error) error {
	if err != nil {
		return err
	}
	return opened.Close()
}

func descriptionCases() []Case {
	const group = "description"
	return []Case{
		{Group: group, Name: "it starts and describes itself", fresh: true, run: startsAndDescribes},
		{Group: group, Name: "it says its version and what it is", fresh: true, run: namesItself},
		{Group: group, Name: "every process describes itself alike", fresh: true, run: describesAlike},
		{Group: group, Name: "it offers languages by their canonical names", fresh: true, run: canonicalLanguages},
		{Group: group, Name: "it offers templates, each once", fresh: true, run: distinctTemplates},
		{Group: group, Name: "templates list languages that it offers", fresh: true, run: templatesOfItsLanguages},
		{Group: group, Name: "every language has a template", fresh: true, run: everyLanguageHasATemplate},
		{Group: group, Name: "it claims capabilities that exist, each once", fresh: true, run: knownCapabilities},
	}
}

// described starts a process of its own and returns what it says of itself.
func (c *scene) described() sdk.Description { return c.launched().Describe() }

// "It is called before Configure, also for `check` and for docs." (Provider.Describe)
// The client that asks refuses a description that breaks the rules: names and sizes,
// and a schema whose defaults, options or bounds contradict each other.
func startsAndDescribes(c *scene) {
	d := c.described()
	c.check(d.Name != "", "its name is empty")
}

// "Version is the plugin's version, for people. Summary is one sentence for
// people." (Description)
func namesItself(c *scene) {
	d := c.described()
	c.check(strings.TrimSpace(d.Version) != "", "its version is empty")
	c.check(strings.TrimSpace(d.Summary) != "", "its summary is empty")
	c.check(!strings.Contains(strings.TrimSpace(d.Summary), "\n"), "its summary has several lines: %q", d.Summary)
}

// "Describe says what this provider is", which is the same for `check`, for the
// docs and for the process that serves.
func describesAlike(c *scene) {
	equal(c, c.described(), c.described(), "the description of a second process")
}

// "Language is the canonical name of a programming language." (Language)
func canonicalLanguages(c *scene) {
	languages := c.described().Languages
	c.check(len(languages) > 0, "it offers no language, so nothing can be executed")
	for i, l := range languages {
		equal(c, l, sdk.ParseLanguage(string(l)), "the language %q", l)
		c.check(!slices.Contains(languages[:i], l), "the language %s stands there twice", l)
	}
}

// "Templates that Create accepts; the first is the default." (Description)
func distinctTemplates(c *scene) {
	templates := c.described().Templates
	c.check(len(templates) > 0, "it offers no template, so nothing can be created")
	seen := map[string]bool{}
	for _, t := range templates {
		c.check(!seen[t.Name], "the template %s stands there twice", t.Name)
		seen[t.Name] = true
	}
}

// "Languages that this template serves best", of those that Execute accepts.
// (Template)
func templatesOfItsLanguages(c *scene) {
	d := c.described()
	for _, t := range d.Templates {
		for _, l := range t.Languages {
			c.check(slices.Contains(d.Languages, l), "the template %s lists %s, which the provider does not offer", t.Name, l)
		}
	}
}

// "an execution that names no template gets the first one listing its language."
// (Template)
func everyLanguageHasATemplate(c *scene) {
	d := c.described()
	for _, l := range d.Languages {
		c.check(d.TemplateFor(l) != "", "no template lists %s, so executions in it find none", l)
	}
}

// "Capability names an optional ability of a provider." (Capability)
func knownCapabilities(c *scene) {
	capabilities := c.described().Capabilities
	for i, capability := range capabilities {
		c.check(slices.Contains(everyCapability(), capability), "%q is not a capability", capability)
		c.check(!slices.Contains(capabilities[:i], capability), "the capability %s stands there twice", capability)
	}
}
