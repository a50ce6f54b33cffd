package wire

import (
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// checkedOutput passes on what a plugin sends, and ends a call that sends more than it
// may. It is the one place where the broker counts: package serve has cut at the source.
type checkedOutput struct {
	out       sdk.Output
	room      [2]int64
	artifacts *sdk.ArtifactLimits
	count     int
	bytes     int64
}

func newCheckedOutput(out sdk.Output, limit int64, artifacts *sdk.ArtifactLimits) *checkedOutput {
	return &checkedOutput{out: out, room: [2]int64{limit, limit}, artifacts: artifacts}
}

func (c *checkedOutput) Stdout(p []byte) error {
	if c.room[0] -= int64(len(p)); c.room[0] < 0 {
		return misbehaved("sent more output than the limit")
	}
	return c.out.Stdout(p)
}

func (c *checkedOutput) Stderr(p []byte) error {
	if c.room[1] -= int64(len(p)); c.room[1] < 0 {
		return misbehaved("sent more output than the limit")
	}
	return c.out.Stderr(p)
}

// plainHeader reports whether a text can stand in a header as it is.
func plainHeader(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

func (c *checkedOutput) artifact(wa *providerv1.Artifact) error {
	if c.artifacts == nil {
		return misbehaved("sent an artifact that nobody asked for")
	}
	// One more than the limit tells that there were more.
	if c.count++; c.count > c.artifacts.MaxCount+1 {
		return misbehaved("sent more artifacts than the limit")
	}
	a := sdk.Artifact{
		Kind: sdk.ArtifactKind(wa.GetKind()), Name: wa.GetName(), MIMEType: wa.GetMimeType(), Data: wa.GetData(),
		Size: wa.GetSize(), Group: int(wa.GetGroup()), Refused: wa.GetRefused(),
	}
	switch {
	case a.Kind != sdk.ArtifactResult && a.Kind != sdk.ArtifactDisplay && a.Kind != sdk.ArtifactFile:
		return misbehaved("sent an artifact of an unknown kind")
	case int64(len(a.Data)) > c.artifacts.MaxBytes, c.bytes+int64(len(a.Data)) > c.artifacts.MaxTotalBytes:
		return misbehaved("sent an artifact above the limit")
	case len(a.Name) > maxText, len(a.MIMEType) > maxText, len(a.Refused) > maxText, a.Size < int64(len(a.Data)):
		return misbehaved("described an artifact unacceptably")
	}
	if !plainHeader(a.MIMEType) {
		a.MIMEType = "application/octet-stream" // code can forge it, so the answer is not given up for it
	}
	c.bytes += int64(len(a.Data))
	return c.out.Artifact(a)
}
