package quota

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// soon is Retry-After where nobody can know: as soon as something ends.
const soon = time.Second

// Refusal says which limit stands in the way of a request. As an error it is an
// sdk.Error with SB008.
type Refusal struct {
	Tenant string
	Limit  Limit
	// Max is the limit's value and Used what is taken of it now; in seconds,
	// MiB or units of money where the limit is in those.
	Max, Used float64
	// RetryAfter is when it may be worth to ask again; 0 for never, as things are
	// configured.
	RetryAfter time.Duration
	// Need is what was asked for, and is more than Max when no waiting helps.
	Need float64
	// waiting is why a request that asked to wait does not: the queue is full.
	waiting int
	// short says that the limit has more, which may be had of the other brokers.
	short bool
}

// Error says it for the caller.
func (r *Refusal) Error() string { return r.Unwrap().Error() }

// Unwrap returns the error with its code.
func (r *Refusal) Unwrap() error {
	err := sdk.Errorf(sdk.CodeQuotaExceeded, "%s", r.message())
	err.RetryAfter = r.RetryAfter
	return err
}

func (r *Refusal) message() string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	var text string
	switch {
	case r.Limit == ProviderFull:
		text = "the provider has no room, and others wait for it already"
	case r.Limit == RequestsPerSecond:
		text = fmt.Sprintf("more requests than the quota %s = %s allows", r.Limit, number(r.Max))
	case r.Need > r.Max:
		return fmt.Sprintf("this takes %s of the quota %s, which is %s in all", number(r.Need), r.Limit, number(r.Max))
	default:
		text = fmt.Sprintf("the quota %s = %s does not allow more: %s in use", r.Limit, number(r.Max), number(r.Used))
		if r.Limit == ExecutionTimePerDay || r.Limit == MoneyPerDay || r.Limit == MoneyPerMonth {
			text += fmt.Sprintf(", and this could take %s", number(r.Need))
		}
	}
	if r.waiting > 0 {
		text += fmt.Sprintf("; %d requests wait already, which is as many as may", r.waiting)
	}
	return text
}
