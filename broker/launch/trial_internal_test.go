package launch

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestWhatATrialSaysOfItsFailure(t *testing.T) {
	late, cancel := context.WithCancelCause(t.Context())
	cancel(errTrialTooLong)
	field := func(name string) error { return sdk.FieldErrorf(sdk.CodeInvalidConfig, name, "is wrong") }
	for name, c := range map[string]struct {
		ctx            context.Context
		err            error
		code           sdk.Code
		field, message string
	}{
		"a setting is wrong":                     {t.Context(), field("endpoint"), sdk.CodeInvalidConfig, "endpoint", "is wrong"},
		"a setting that the provider has not":    {t.Context(), field("../etc/passwd"), sdk.CodeInvalidConfig, "", "is wrong"},
		"the back end is down":                   {t.Context(), sdk.Errorf(sdk.CodeConnectionFailed, "no route"), sdk.CodeConnectionFailed, "", "no route"},
		"an error without a code":                {t.Context(), errors.New("it broke"), sdk.CodeInternal, "", "it broke"},
		"it took too long, whatever it says now": {late, field("endpoint"), sdk.CodeConnectionFailed, "", "The provider did not answer within 30s."},
	} {
		t.Run(name, func(t *testing.T) {
			one := trial{
				Starter: &Starter{Logger: hclog.NewNullLogger()}, block: &config.Provider{Label: "box"},
				schema: sdk.Schema{{Name: "endpoint", Type: sdk.TypeString}},
			}
			one.explain(c.ctx, c.err)
			assert.Equal(t, one.result.Code, c.code)
			assert.Equal(t, one.result.Field, c.field)
			assert.Equal(t, one.result.Message, c.message)
		})
	}
}
