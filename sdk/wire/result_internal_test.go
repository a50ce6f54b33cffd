package wire

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// lastStream is a stream behind its last message: it ends with an error after a time, or
// with its context.
type lastStream struct {
	grpc.ServerStreamingClient[providerv1.ExecuteResponse]

	ctx   context.Context
	after time.Duration
	err   error
}

func (s lastStream) Recv() (*providerv1.ExecuteResponse, error) {
	select {
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	case <-time.After(s.after):
		return &providerv1.ExecuteResponse{}, s.err
	}
}

func TestTheEndOfAStreamBehindItsAnswer(t *testing.T) {
	t.Parallel()
	lost := status.Error(codes.DataLoss, "lost")
	for name, test := range map[string]struct {
		timeout, after time.Duration
		err            error
		refused        string // "" if the answer counts
	}{
		"at once":                             {time.Minute, 0, io.EOF, ""},
		"just within the patience":            {time.Minute, endPatience - 1, io.EOF, ""},
		"after the patience":                  {time.Minute, endPatience + 1, io.EOF, "did not end its answer within 5s"},
		"never, for a caller with time":       {time.Minute, time.Hour, nil, "did not end its answer within 5s"},
		"never, for a caller without time":    {endPatience - 1, time.Hour, nil, ""},
		"with another message":                {time.Minute, 1, nil, "went on after its last message"},
		"with an error":                       {time.Minute, 1, lost, "took back"},
		"after the end of the caller's time":  {1, 2, lost, ""},
		"with an error, just before that end": {2, 1, lost, "took back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
				defer cancel()
				stream := lastStream{ctx: ctx, after: test.after, err: test.err}
				answer, err := lastly(ctx, cancel, stream, func() (string, error) { return "answer", nil })
				if test.refused == "" {
					assert.NilError(t, err)
					assert.Equal(t, answer, "answer")
					return
				}
				assert.ErrorContains(t, err, test.refused)
				assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
				assert.Equal(t, answer, "")
			})
		})
	}
}
