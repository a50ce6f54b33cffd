package instance

import (
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxArtifactName bounds the name of a file that is asked for, in bytes.
const maxArtifactName = 1024

func checkFiles(files []string, most int) error {
	if len(files) > most {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "artifacts.files", "has %d names; at most %d are allowed", len(files), most)
	}
	for _, name := range files {
		if name == "" || len(name) > maxArtifactName || strings.ContainsRune(name, 0) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "artifacts.files", "a name must have 1 to %d bytes, none of them NUL", maxArtifactName)
		}
	}
	return nil
}

// capable says whether a provider can do all that a request wants beyond running
// code.
func (req ExecuteRequest) capable(p Provider) error {
	has := func(c sdk.Capability) bool { return slices.Contains(p.Description().Capabilities, c) }
	switch {
	case req.inContext() && !has(sdk.CapabilityContexts):
		return sdk.NotSupported(p.Label(), sdk.CapabilityContexts)
	case len(req.Files) > 0 && !has(sdk.CapabilityArtifacts):
		return sdk.NotSupported(p.Label(), sdk.CapabilityArtifacts)
	}
	return nil
}

// artifacts is what a provider is asked for within limits; nil for one that has
// none.
func (req ExecuteRequest) artifacts(p Provider, limits sdk.ArtifactLimits) *sdk.ArtifactLimits {
	if !slices.Contains(p.Description().Capabilities, sdk.CapabilityArtifacts) {
		return nil
	}
	limits.Files = req.Files
	return &limits
}
