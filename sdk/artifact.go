package sdk

// ArtifactKind says where an artifact comes from.
type ArtifactKind string

// The kinds.
const (
	// ArtifactResult is the value of the last expression, in a context.
	ArtifactResult ArtifactKind = "result"
	// ArtifactDisplay is what the code showed: a figure, display(…).
	ArtifactDisplay ArtifactKind = "display"
	// ArtifactFile is a file that was asked for or written below artifacts/ in
	// the workspace.
	ArtifactFile ArtifactKind = "file"
)

// ArtifactLimits asks Execute for artifacts and bounds them.
//
// Before each execution a provider of artifacts makes /workspace/artifacts, as the user that
// code runs as, unless something else has that name.
type ArtifactLimits struct {
	// Files to return, relative to /workspace, beside those that the execution
	// writes below /workspace/artifacts. They are names, or patterns: * and ? stand
	// for a part of a name, and ** for any number of directories, none too. Only
	// regular files come, and no symbolic link is followed. A name or pattern for
	// which there is no file comes as an artifact without data, which says so.
	Files []string
	// MaxCount bounds all artifacts of an execution. What exceeds it is told
	// with one more, which has no data and says so in Refused.
	MaxCount int
	// MaxBytes bounds the data of one artifact. A larger file comes without
	// data: it can be read as a file.
	MaxBytes int64
	// MaxTotalBytes bounds the data of all of them together. What would exceed
	// it comes without data.
	MaxTotalBytes int64
}

// Artifact is something that an execution made beside its output. A value with
// several representations gives several artifacts of the same Group.
type Artifact struct {
	Kind ArtifactKind
	// Name of a file, relative to /workspace; else empty.
	Name string
	// MIMEType of Data: text/plain, text/html, application/json, image/png, …
	MIMEType string
	Data     []byte
	// Size in bytes of the whole, where Data was left out too.
	Size int64
	// Group numbers the values from 1.
	Group int
	// Refused says in a sentence why there is no Data.
	Refused string
}

// MaxArtifactCount and MaxArtifactBytes are the most that ArtifactLimits may ask
// for.
const (
	MaxArtifactCount = 100
	MaxArtifactBytes = 16 << 20
)
