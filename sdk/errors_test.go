package sdk_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
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
