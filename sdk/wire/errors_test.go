package wire_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func TestEveryCodeSurvivesTheWire(t *testing.T) {
	for _, info := range sdk.CodeTable() {
		t.Run(string(info.Code), func(t *testing.T) {
			sent := &sdk.Error{
				Code: info.Code, Message: "what happened", Field: "pool_size", Capability: "files", RetryAfter: 1500 * time.Millisecond,
				NoEffect: true,
			}
			status := status.Convert(wire.EncodeError(sent))
			assert.Assert(t, status.Code() != codes.OK && status.Code() != codes.Unavailable && status.Code() != codes.Unknown, status.Code())
			got, ok := errors.AsType[*sdk.Error](wire.DecodeError(status.Err()))
			assert.Assert(t, ok)
			assert.Equal(t, got.Code, sent.Code)
			assert.Equal(t, got.Message, sent.Message)
			assert.Equal(t, got.Field, sent.Field)
			assert.Equal(t, got.Capability, sent.Capability)
			assert.Equal(t, got.RetryAfter, sent.RetryAfter)
			assert.Equal(t, got.NoEffect, sent.NoEffect)
		})
	}
}

func TestALongMessageIsCut(t *testing.T) {
	long := strings.Repeat("日本", 1<<20)
	err := &sdk.Error{Code: sdk.CodeCreateFailed, Message: long, Field: long, Capability: sdk.Capability(long)}
	got, ok := errors.AsType[*sdk.Error](wire.DecodeError(wire.EncodeError(err)))
	assert.Assert(t, ok)
	for _, text := range []string{got.Message, got.Field, string(got.Capability)} {
		assert.Assert(t, len(text) > 4000 && len(text) < 4200, "%d", len(text))
		assert.Assert(t, utf8.ValidString(text))
	}
}

func TestAMessageThatIsNotUTF8SurvivesTheWire(t *testing.T) {
	err := &sdk.Error{Code: sdk.CodeCreateFailed, Message: "a\xffb", Field: "\xff"}
	got := wire.DecodeError(wire.EncodeError(err))
	assert.Error(t, got, "SB004: \uFFFD: a\uFFFDb")
}

func TestWhatAPluginMaySendInAnError(t *testing.T) {
	for name, test := range map[string]struct {
		detail  *providerv1.ErrorDetail
		code    sdk.Code
		message string
		after   time.Duration
	}{
		"an unknown code":       {&providerv1.ErrorDetail{Code: "SB999", Message: "text"}, sdk.CodeInternal, "unknown code SB999: text", 0},
		"no code":               {&providerv1.ErrorDetail{Message: "text"}, sdk.CodeInternal, "unknown code : text", 0},
		"a negative delay":      {&providerv1.ErrorDetail{Code: "SB008", RetryAfter: durationpb.New(-1)}, sdk.CodeQuotaExceeded, "", 0},
		"an endless delay":      {&providerv1.ErrorDetail{Code: "SB008", RetryAfter: durationpb.New(1 << 62)}, sdk.CodeQuotaExceeded, "", 24 * time.Hour},
		"a delay out of bounds": {&providerv1.ErrorDetail{Code: "SB008", RetryAfter: &durationpb.Duration{Seconds: 1, Nanos: -5}}, sdk.CodeQuotaExceeded, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			st, err := status.New(codes.Aborted, "status").WithDetails(test.detail)
			assert.NilError(t, err)
			got, ok := errors.AsType[*sdk.Error](wire.DecodeError(st.Err()))
			assert.Assert(t, ok)
			assert.Equal(t, got.Code, test.code)
			assert.Equal(t, got.Message, test.message)
			assert.Equal(t, got.RetryAfter, test.after)
		})
	}
}

func TestErrorsOfTheTransport(t *testing.T) {
	for code, want := range map[codes.Code]sdk.Code{
		codes.Unavailable:       sdk.CodeUnavailable,
		codes.Unimplemented:     sdk.CodeNotSupported,
		codes.ResourceExhausted: sdk.CodeInternal,
		codes.Unknown:           sdk.CodeInternal,
		codes.Internal:          sdk.CodeInternal,
	} {
		assert.Equal(t, sdk.CodeOf(wire.DecodeError(status.Error(code, "text"))), want, code)
	}
	assert.NilError(t, wire.DecodeError(nil))
	assert.ErrorIs(t, wire.DecodeError(status.Error(codes.Canceled, "")), context.Canceled)
	assert.ErrorIs(t, wire.DecodeError(status.Error(codes.DeadlineExceeded, "")), context.DeadlineExceeded)
	assert.ErrorIs(t, wire.DecodeError(io.ErrUnexpectedEOF), io.ErrUnexpectedEOF)
}
