package guestclient

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
)

// maxAnswer bounds what a program is told of its installation, on each stream.
const maxAnswer = 256 << 10

// Installed is the answer to a program that asked for packages.
type Installed struct {
	ExitCode       int
	Stdout, Stderr []byte
}

// ServeRequested answers programs in the sandbox that ask for packages, one after the
// other, until ctx or the sandbox ends. What they ask for is the word of user code.
func (c *Client) ServeRequested(ctx context.Context, install func(ctx context.Context, requirements []string) Installed) {
	stream, err := c.install.Requested(ctx, &guestv1.RequestedRequest{})
	for err == nil {
		var asked *guestv1.RequestedResponse
		if asked, err = stream.Recv(); err != nil {
			return
		}
		answer := install(ctx, asked.GetRequirements())
		_, err = c.install.Answer(ctx, &guestv1.AnswerRequest{
			Id: asked.GetId(), ExitCode: int32(answer.ExitCode), Stdout: clipped(answer.Stdout), Stderr: clipped(answer.Stderr),
		})
	}
}

func clipped(p []byte) []byte { return p[:min(len(p), maxAnswer)] }
