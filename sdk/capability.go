package sdk

// Capability names an optional ability of a provider. All but
// CapabilityArtifacts are the names of interfaces: a provider that implements
// one has the capability.
type Capability string

// The capabilities, with the interface that each stands for.
const (
	CapabilityInterrupt  Capability = "interrupt"   // Interrupter
	CapabilityContexts   Capability = "contexts"    // Contexts
	CapabilityCommands   Capability = "commands"    // Commands
	CapabilityFiles      Capability = "files"       // Files
	CapabilityFileSearch Capability = "file_search" // FileSearcher
	CapabilityFileWatch  Capability = "file_watch"  // FileWatcher
	CapabilityFileMode   Capability = "file_mode"   // FileModeSetter
	CapabilityArchives   Capability = "archives"    // Archiver
	CapabilityPorts      Capability = "ports"       // Ports
	CapabilityPause      Capability = "pause"       // Pauser
	CapabilitySetTTL     Capability = "set_ttl"     // TTLSetter
	// CapabilityPauseReleases is that of a PauseReleaser.
	CapabilityPauseReleases Capability = "pause_releases"
	CapabilityMetrics       Capability = "metrics"   // Meter
	CapabilityPackages      Capability = "packages"  // PackageInstaller
	CapabilityTemplates     Capability = "templates" // TemplateBuilder
	CapabilitySnapshots     Capability = "snapshots" // Snapshotter
	CapabilityVolumes       Capability = "volumes"   // VolumeKeeper
	CapabilityNetwork       Capability = "network"   // NetworkGovernor
	CapabilityAdoption      Capability = "adoption"  // Adopter
	// CapabilityArtifacts means that Execute obeys ExecuteRequest.Artifacts. No
	// interface shows it, so the author lists it in Description.Capabilities.
	CapabilityArtifacts Capability = "artifacts"
)

// Capabilities returns those that this version knows.
func Capabilities() []Capability {
	return []Capability{
		CapabilityInterrupt, CapabilityContexts, CapabilityCommands, CapabilityFiles, CapabilityFileSearch, CapabilityFileWatch,
		CapabilityFileMode, CapabilityArchives, CapabilityPorts, CapabilityPause, CapabilityPauseReleases, CapabilitySetTTL, CapabilityMetrics, CapabilityPackages,
		CapabilitySnapshots, CapabilityVolumes, CapabilityTemplates, CapabilityNetwork, CapabilityAdoption, CapabilityArtifacts,
	}
}

// CapabilitiesOf finds what a provider can do beyond Provider, by its interfaces. Of what it
// declares only CapabilityArtifacts counts, which has none. Package serve calls it for
// the Description that the broker gets: a provider cannot gain or lose a capability while
// it runs. One that wraps another has the interfaces of its own type alone.
func CapabilitiesOf(p Provider, declared []Capability) []Capability {
	var found []Capability
	for _, c := range declared {
		if c == CapabilityArtifacts {
			found = append(found, c)
			break
		}
	}
	add := func(c Capability, has bool) {
		if has {
			found = append(found, c)
		}
	}
	add(CapabilityInterrupt, implements[Interrupter](p))
	add(CapabilityContexts, implements[Contexts](p))
	add(CapabilityCommands, implements[Commands](p))
	add(CapabilityFiles, implements[Files](p))
	add(CapabilityFileSearch, implements[FileSearcher](p))
	add(CapabilityFileWatch, implements[FileWatcher](p))
	add(CapabilityFileMode, implements[FileModeSetter](p))
	add(CapabilityArchives, implements[Archiver](p))
	add(CapabilityPorts, implements[Ports](p))
	add(CapabilityPause, implements[Pauser](p))
	add(CapabilityPauseReleases, implements[PauseReleaser](p))
	add(CapabilitySetTTL, implements[TTLSetter](p))
	add(CapabilityMetrics, implements[Meter](p))
	add(CapabilityPackages, implements[PackageInstaller](p))
	add(CapabilitySnapshots, implements[Snapshotter](p))
	add(CapabilityVolumes, implements[VolumeKeeper](p))
	add(CapabilityTemplates, implements[TemplateBuilder](p))
	add(CapabilityNetwork, implements[NetworkGovernor](p))
	add(CapabilityAdoption, implements[Adopter](p))
	return found
}

func implements[T any](p Provider) bool {
	_, ok := p.(T)
	return ok
}

// NotSupported is the error for a call that needs a capability which a provider
// lacks, or has not for this instance. Provider is the name of the plugin.
func NotSupported(provider string, c Capability) *Error {
	e := Errorf(CodeNotSupported, "the provider %s has no %s", provider, c)
	e.Capability = c
	return e
}
