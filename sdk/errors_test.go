package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func TestEveryCodeIsDocumented(t *testing.T) {
	table := sdk.CodeTable()
	assert.Equal(t, len(table), 16)
	for i, info := range table {
		assert.Equal(t, info.Code, sdk.Code(fmt.Sprintf("SB%03d", i)))
		assert.Assert(t, info.Title != "" && info.Advice != "", info.Code)
		assert.Assert(t, info.HTTPStatus == 200 || info.HTTPStatus >= 400 && info.HTTPStatus < 600, info.Code)
		assert.Assert(t, info.Code.Known())
		assert.Equal(t, info.Code.Info(), info)
	}
	for _, s := range sdk.Statuses() {
		if code := s.Code(); code != "" {
			assert.Equal(t, code.Info().HTTPStatus, 200, "what became of code is no failure of the service")
		}
	}
	assert.Assert(t, !sdk.Code("SB999").Known())
	assert.Equal(t, sdk.Code("SB999").Info().Code, sdk.CodeInternal)
}

func TestEveryCodeSurvivesTheWire(t *testing.T) {
	for _, info := range sdk.CodeTable() {
		t.Run(string(info.Code), func(t *testing.T) {
			sent := &sdk.Error{
				Code: info.Code, Message: "what happened", Field: "pool_size", Capability: "files", RetryAfter: 1500 * time.Millisecond,
				NoEffect: true,
			}
			wire := sent.GRPCStatus()
			assert.Assert(t, wire.Code() != codes.OK && wire.Code() != codes.Unavailable && wire.Code() != codes.Unknown, wire.Code())
			got, ok := errors.AsType[*sdk.Error](sdk.ErrorFromStatus(wire.Err()))
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

func TestAnErrorIsFoundByItsCode(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("create: %w", sdk.FieldErrorf(sdk.CodeInvalidConfig, "cpus", "too many: %w", cause))
	assert.Error(t, err, "create: SB002: cpus: too many: cause")
	assert.ErrorIs(t, err, cause)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
	assert.Assert(t, !errors.Is(err, &sdk.Error{Code: sdk.CodeNotFound}))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidConfig)
	assert.Equal(t, sdk.CodeOf(cause), sdk.CodeInternal)
	assert.Equal(t, sdk.CodeOf(nil), sdk.Code(""))
}

func TestALongMessageIsCut(t *testing.T) {
	long := strings.Repeat("日本", 1<<20)
	err := &sdk.Error{Code: sdk.CodeCreateFailed, Message: long, Field: long, Capability: sdk.Capability(long)}
	got, ok := errors.AsType[*sdk.Error](sdk.ErrorFromStatus(err.GRPCStatus().Err()))
	assert.Assert(t, ok)
	for _, text := range []string{got.Message, got.Field, string(got.Capability)} {
		assert.Assert(t, len(text) > 4000 && len(text) < 4200, "%d", len(text))
		assert.Assert(t, utf8.ValidString(text))
	}
}

func TestAMessageThatIsNotUTF8SurvivesTheWire(t *testing.T) {
	err := &sdk.Error{Code: sdk.CodeCreateFailed, Message: "a\xffb", Field: "\xff"}
	got := sdk.ErrorFromStatus(err.GRPCStatus().Err())
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
			got, ok := errors.AsType[*sdk.Error](sdk.ErrorFromStatus(st.Err()))
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
		assert.Equal(t, sdk.CodeOf(sdk.ErrorFromStatus(status.Error(code, "text"))), want, code)
	}
	assert.NilError(t, sdk.ErrorFromStatus(nil))
	assert.ErrorIs(t, sdk.ErrorFromStatus(status.Error(codes.Canceled, "")), context.Canceled)
	assert.ErrorIs(t, sdk.ErrorFromStatus(status.Error(codes.DeadlineExceeded, "")), context.DeadlineExceeded)
	assert.ErrorIs(t, sdk.ErrorFromStatus(io.ErrUnexpectedEOF), io.ErrUnexpectedEOF)
}

func TestCodesOfAProviderNeverBlameTheCaller(t *testing.T) {
	untrue := []sdk.Code{sdk.CodeInvalidConfig, sdk.CodeNotAuthenticated, sdk.CodeNotAllowed, sdk.CodeNotFound, sdk.CodeConflict}
	for _, info := range sdk.CodeTable() {
		want := info.Code
		if slices.Contains(untrue, want) {
			want = sdk.CodeUnavailable
		}
		assert.Equal(t, info.Code.FromProvider(), want)
	}
}

func TestAnInstanceThatIsGoneIsToldFromOneThatEndsUnderItsCode(t *testing.T) {
	instance, context := sdk.Errorf(sdk.CodeNotFound, "gone"), sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "gone")
	other := sdk.Errorf(sdk.CodeConnectionFailed, "no route")
	for name, test := range map[string]struct {
		err   error
		begun bool
		code  sdk.Code
		none  bool // it says that there was no effect
	}{
		"an instance, before": {instance, false, sdk.CodeNotFound, true},
		"an instance, during": {instance, true, sdk.CodeUnavailable, false},
		"a context, before":   {context, false, sdk.CodeNotFound, false},
		"a context, during":   {context, true, sdk.CodeUnavailable, false},
		"another failure":     {other, true, sdk.CodeConnectionFailed, false},
		"an error of no code": {errors.New("oops"), false, sdk.CodeInternal, false},
		"nothing":             {nil, true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := sdk.ExecutionError(test.err, test.begun)
			assert.Equal(t, sdk.CodeOf(err), test.code)
			e, ok := errors.AsType[*sdk.Error](err)
			assert.Equal(t, ok && e.NoEffect, test.none)
		})
	}
	assert.Check(t, !instance.NoEffect, "what was given stays as it was")
}
