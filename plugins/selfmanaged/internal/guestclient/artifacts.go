package guestclient

import (
	"errors"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/grpc/status"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// errArtifacts ends an execution whose guest does not keep the limits: it is not
// the guest any more that was started.
var errArtifacts = errors.New("the guest sends artifacts that nobody asked for")

func limits(a *sdk.ArtifactLimits) *providerv1.ArtifactLimits {
	if a == nil {
		return nil
	}
	return &providerv1.ArtifactLimits{Files: a.Files, MaxCount: int32(a.MaxCount), MaxBytes: a.MaxBytes, MaxTotalBytes: a.MaxTotalBytes}
}

// artifacts passes on what the guest sends. The sizes are for the SDK to check.
type artifacts struct {
	limits *sdk.ArtifactLimits
	out    sdk.Output
	count  int
}

func newArtifacts(l *sdk.ArtifactLimits, out sdk.Output) *artifacts {
	return &artifacts{limits: l, out: out}
}

func (a *artifacts) take(wa *providerv1.Artifact) error {
	a.count++
	if a.limits == nil || a.count > a.limits.MaxCount+1 {
		return errArtifacts
	}
	return a.out.Artifact(sdk.Artifact{
		Kind: sdk.ArtifactKind(wa.GetKind()), Name: printable(wa.GetName()), MIMEType: printable(wa.GetMimeType()), Data: wa.GetData(),
		Size: max(wa.GetSize(), 0), Group: int(wa.GetGroup()), Refused: printable(wa.GetRefused()),
	})
}

// maxText bounds what the guest says in words, in bytes.
const maxText = 4 << 10

func printable(text string) string { return validtext.Clip(text, maxText) }

func joined(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}

// refused returns the error of the SDK that a guest's refusal carries, if it is
// one.
func refused(err error) error {
	if len(status.Convert(err).Details()) == 0 {
		return nil
	}
	return wire.DecodeError(err)
}
