package model

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// Key checks the history of one Idempotency-Key: once it has an answer, it has that for ever.
func (t Truth) Key(h History, timeout time.Duration) porcupine.CheckResult {
	return t.check(porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, in, _ any) []any {
			i, answer := in.(input), state.(string)
			switch {
			case i.Kind == Ask && (answer == "" || answer == i.Answer):
				return []any{i.Answer}
			case i.Kind == Loss:
				return []any{answer} // an answer outlives its owner
			}
			return nil
		},
	}, h, timeout)
}
