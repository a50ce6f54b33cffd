package sdk

import (
	"context"
	"regexp"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// MetadataRequestID is the name under which the broker sends the ID of the request
// that a call is made for. Calls that no request asked for have none.
const MetadataRequestID = "sandbox-broker-request-id"

// requestIDForm is that of the broker: nothing in a log can be forged with it.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// RequestID returns the ID of the request that a call of the provider is made for, as
// it stands in the broker's log, in its audit log and in the header X-Request-Id of
// the answer. It is "" where there is none: the broker has asked by itself. Send it
// to your service if that has a log too. It says nothing about who asked, and must
// not be relied on to be unique: clients may choose it.
func RequestID(ctx context.Context) string {
	ids := metadata.ValueFromIncomingContext(ctx, MetadataRequestID)
	if len(ids) != 1 || !requestIDForm.MatchString(ids[0]) {
		return ""
	}
	return ids[0]
}

type loggerKey struct{}

// Logger returns the logger of the Factory for what is written during a call: each
// entry has the field request_id, if there is a request. Outside of a call nothing is
// written.
func Logger(ctx context.Context) hclog.Logger {
	if logger, ok := ctx.Value(loggerKey{}).(hclog.Logger); ok {
		return logger
	}
	return hclog.NewNullLogger()
}

// withLogger makes Logger work in a call.
func withLogger(ctx context.Context, logger hclog.Logger) context.Context {
	if id := RequestID(ctx); id != "" {
		logger = logger.With("request_id", id)
	}
	return context.WithValue(ctx, loggerKey{}, logger)
}

// loggedStream is a stream whose context has the logger of its call.
type loggedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it stands in for that of the stream
}

func (s loggedStream) Context() context.Context { return s.ctx }
