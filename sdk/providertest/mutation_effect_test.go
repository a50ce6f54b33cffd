package providertest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// retelling has Execute fail with other errors than it did.
func retelling(change func(*sdk.Error)) func(*broken) {
	return func(b *broken) {
		b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			result, err := b.Provider.Execute(ctx, req, out)
			if e, ok := errors.AsType[*sdk.Error](err); ok {
				told := *e
				change(&told)
				return result, &told
			}
			return result, err
		}
	}
}

func TestAProviderThatDoesNotSayWhetherCodeRanIsFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"an unknown instance that may have had an effect": {
			among: "errors/an unknown instance", fails: []string{" is not found"},
			breaks: retelling(func(e *sdk.Error) { e.NoEffect = false }),
		},
		"code that ran in an instance that is not found": {
			among: "lifecycle/to destroy ends", fails: []string{" what executes"},
			breaks: retelling(func(e *sdk.Error) { e.Code = sdk.CodeNotFound }),
		},
		"code that ran and had no effect": {
			among: "lifecycle/to destroy ends", fails: []string{" what executes"},
			breaks: retelling(func(e *sdk.Error) { e.NoEffect = true }),
		},
	})
}
