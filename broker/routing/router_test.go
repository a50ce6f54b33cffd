package routing_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
)

func three() []routing.Candidate {
	return []routing.Candidate{{Label: "a", Cost: 2}, {Label: "b", Cost: 1}, {Label: "c", Cost: 1}}
}

func labels(order []routing.Choice) (all string) {
	for _, c := range order {
		all += c.Label
	}
	return all
}

func TestPoliciesOrderTheProviders(t *testing.T) {
	r := routing.New()
	order := r.Order(routing.Ordered, three())
	assert.Equal(t, labels(order), "abc")
	assert.Equal(t, order[0].Reason, routing.ReasonActive)
	order = r.Order(routing.Cheapest, three())
	assert.Equal(t, labels(order), "bca", "those that cost the same stay as they are")
	assert.Equal(t, order[0].Reason, "cheapest")
	assert.Equal(t, labels(r.Order(routing.Fastest, three())), "abc", "nothing is known yet")
}

func TestTheFastestIsFoundAndOneThatRecoveredToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routing.New()
		speed := map[string]time.Duration{"a": 3 * time.Second, "b": time.Second, "c": 2 * time.Second}
		first := map[string]int{}
		ask := func(n int) {
			clear(first)
			for range n {
				label := r.Order(routing.Fastest, three())[0].Label
				first[label]++
				time.Sleep(speed[label]) // of the bubble's clock
				r.Succeeded(label, speed[label])
			}
		}
		ask(3)
		assert.DeepEqual(t, first, map[string]int{"a": 1, "b": 1, "c": 1}) // each is measured once
		ask(17 + 20)
		assert.DeepEqual(t, first, map[string]int{"b": 35, "a": 1, "c": 1}) // two explorations, of the oldest
		speed["a"] = 100 * time.Millisecond
		ask(20 * 40)
		assert.Assert(t, first["a"] > first["b"], "%v", first)
		ask(20)
		assert.Equal(t, first["a"], 19)
	})
}

func TestTheCircuitOpensAfterFailuresInARowAndForLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routing.New()
		for range 2 {
			r.Failed("a")
		}
		r.Succeeded("a", time.Second)
		for range 2 {
			r.Failed("a")
			assert.Assert(t, enter(r, "a"), "two failures in a row do not open it")
		}
		r.Failed("a")
		assert.Equal(t, r.Standing("a").Circuit, routing.Open)
		for _, pause := range []time.Duration{5, 10, 20, 40, 80, 120, 120} {
			assert.Equal(t, time.Until(r.Standing("a").Until), pause*time.Second)
			r.Failed("a") // begun before it opened
			time.Sleep(pause*time.Second - 1)
			assert.Assert(t, !enter(r, "a"))
			time.Sleep(time.Nanosecond)
			assert.Equal(t, r.Standing("a").Circuit, routing.HalfOpen)
			assert.Assert(t, enter(r, "a"))
			assert.Assert(t, !enter(r, "a"), "one request is let through")
			assert.Equal(t, r.Standing("a").Circuit, routing.HalfOpen)
			r.Failed("a")
			assert.Equal(t, r.Standing("a").Circuit, routing.Open)
		}
		time.Sleep(2 * time.Minute)
		assert.Assert(t, enter(r, "a"))
		time.Sleep(2 * time.Minute)
		assert.Assert(t, enter(r, "a"), "nothing was heard of the last trial")
		r.Succeeded("a", time.Second)
		assert.Equal(t, r.Standing("a"), routing.Standing{Circuit: routing.Closed, Creation: r.Standing("a").Creation})
		for range 2 {
			assert.Assert(t, enter(r, "a"), "nobody is held back any more")
		}
		assert.Assert(t, enter(r, "b"), "each has its own")
	})
}

func enter(r *routing.Router, label string) bool {
	may, _ := r.Enter(label, true)
	return may
}

func TestATrialIsOfAProviderThatIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routing.New()
		may, trial := r.Enter("a", false)
		assert.Assert(t, may && !trial, "a closed circuit asks for nothing")
		for range 3 {
			r.Failed("a")
		}
		time.Sleep(time.Minute)
		may, _ = r.Enter("a", false)
		assert.Assert(t, !may)
		may, trial = r.Enter("a", true)
		assert.Assert(t, may && trial)
	})
}
