package sdk_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// choosy is a provider with a rule beyond its schema.
type choosy struct {
	sdk.Provider
	configured bool
}

func (*choosy) Describe() sdk.Description {
	return sdk.Description{Name: "choosy", Schema: sdk.Schema{
		{Name: "size", Type: sdk.TypeInteger, Default: 1}, {Name: "most", Type: sdk.TypeInteger, Default: 1}, {Name: "texts", Type: sdk.TypeList},
	}}
}

func (c *choosy) Configure(context.Context, sdk.ConfigureRequest) error {
	c.configured = true
	return nil
}

func (*choosy) Validate(_ context.Context, settings sdk.Settings) []sdk.FieldError {
	var problems []sdk.FieldError
	if settings["size"].(int64) > settings["most"].(int64) {
		problems = append(problems, sdk.FieldError{Field: "size", Message: "must not be above most"})
	}
	texts, _ := settings["texts"].([]string)
	for _, text := range texts {
		problems = append(problems, sdk.FieldError{Field: "texts", Message: text})
	}
	return problems
}

func TestSettingsAreValidatedBeforeTheyAreUsed(t *testing.T) {
	provider := &choosy{}
	plugin, err := providertest.InProcess(func(hclog.Logger) sdk.Provider { return provider })(t.Context())
	assert.NilError(t, err)
	defer func() { assert.Check(t, plugin.Stop(t.Context())) }()
	client, err := wire.NewClient(t.Context(), plugin.Conn)
	assert.NilError(t, err)

	problems, err := client.Validate(t.Context(), sdk.Settings{"size": int64(1)})
	assert.NilError(t, err)
	assert.Equal(t, len(problems), 0)
	bad := sdk.Settings{"size": int64(3), "most": int64(2), "texts": []string{"a", "b"}}
	problems, err = client.Validate(t.Context(), bad)
	assert.NilError(t, err)
	assert.DeepEqual(t, problems, []sdk.FieldError{{Field: "size", Message: "must not be above most"}, {Field: "texts", Message: "a"}, {Field: "texts", Message: "b"}})
	// What breaks the schema comes first, and the provider does not see it.
	problems, err = client.Validate(t.Context(), sdk.Settings{"size": "three"})
	assert.NilError(t, err)
	assert.DeepEqual(t, problems, []sdk.FieldError{{Field: "size", Message: "must be a whole number"}})

	err = client.Configure(t.Context(), sdk.ConfigureRequest{Settings: bad})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
	assert.ErrorContains(t, err, "size: must not be above most")
	assert.Assert(t, !provider.configured)

	// However much it finds, it is told.
	problems, err = client.Validate(t.Context(), sdk.Settings{"texts": append(make([]string, 500), strings.Repeat("é\xff", 1))})
	assert.Assert(t, err != nil || len(problems) == sdk.MaxProblems, "%v", err)
	problems, err = client.Validate(t.Context(), sdk.Settings{"texts": []string{strings.Repeat("é", 10_000)}})
	assert.NilError(t, err)
	assert.Assert(t, len(problems) == 1 && len(problems[0].Message) <= 4<<10)
}
