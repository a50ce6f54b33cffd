package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// blow is one thing that the nemesis does.
type blow struct {
	// After is how long it waits before, and Down how long the broker stays dead.
	After, Down    time.Duration
	Broker, Plugin bool
	// Of is the provider whose plugin dies; all if empty.
	Of string
}

func (b blow) String() string {
	who := "plugin"
	switch {
	case b.Broker && b.Plugin:
		who = "both"
	case b.Broker:
		who = "broker"
	}
	return strings.TrimSpace(who+" "+b.Of) + fmt.Sprintf(" after %s, down for %s", b.After, b.Down)
}

// schedule draws what a nemesis does. It depends on the seed alone.
func schedule(random *rand.Rand, kills int) []blow {
	blows := make([]blow, kills)
	for i := range blows {
		b := blow{After: time.Duration(50+random.IntN(450)) * time.Millisecond}
		switch n := random.IntN(10); {
		case n < 5:
			b.Broker = true
		case n < 8:
			b.Plugin = true
		default:
			b.Broker, b.Plugin = true, true
		}
		if b.Broker {
			b.Down = time.Duration(random.IntN(150)) * time.Millisecond
		}
		blows[i] = b
	}
	return blows
}
