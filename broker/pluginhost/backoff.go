package pluginhost

import (
	"math/rand/v2"
	"time"
)

// Backoff says when to start a plugin again. The first restart comes at once;
// then the pauses double from Min to Max, each spread by a quarter either way so
// that providers that died together do not start together. From Opens failures
// in a row on, the provider counts as unavailable and is tried every Retry.
type Backoff struct {
	Min, Max, Retry time.Duration
	Opens           int
	// Stable is how long a process must have run for earlier failures to be
	// forgotten. One that has made an instance or executed something before it
	// died does not lead to Opens.
	Stable time.Duration
	// Repeats is how many such deaths may follow on one another before they cost pauses
	// all the same: these double from Min to Longest. A third of Stable, lived, makes up
	// for one.
	Repeats int
	Longest time.Duration
}

// defaultBackoff is what a zero Backoff means.
func defaultBackoff() Backoff {
	return Backoff{
		Min:    100 * time.Millisecond,
		Max:    5 * time.Second,
		Retry:  30 * time.Second,
		Opens:  5,
		Stable: 30 * time.Second,

		Repeats: 20,
		Longest: time.Minute,
	}
}

// pause returns how long to wait after that many failures in a row.
func (b Backoff) pause(failures int) time.Duration {
	switch {
	case failures >= b.Opens:
		return spread(b.Retry)
	case failures <= 1:
		return 0
	}
	pause := b.Min
	for range failures - 2 {
		pause = min(2*pause, b.Max)
	}
	return spread(pause)
}

// forgive returns how many failures still count after a process that ran for so
// long. One that has done work was no failed start, whatever it died of: the next
// is worth a try soon, and the provider is not given up for it.
func (b Backoff) forgive(failures int, ran time.Duration, worked bool) int {
	switch {
	case ran >= b.Stable:
		return 0
	case worked:
		return min(failures, max(b.Opens-3, 0))
	}
	return failures
}

// repeated returns how many deaths of processes that had done work follow on one another,
// after one more that ran for so long.
func (b Backoff) repeated(deaths int, ran time.Duration, worked bool) int {
	switch {
	case ran >= b.Stable:
		return 0
	case !worked:
		return deaths
	}
	return max(deaths-int(3*ran/b.Stable), 0) + 1
}

// penalty returns how long to wait at least after that many such deaths.
func (b Backoff) penalty(deaths int) time.Duration {
	if b.Repeats == 0 || deaths <= b.Repeats {
		return 0
	}
	pause := b.Min
	for range deaths - b.Repeats {
		if pause = 2 * pause; pause >= b.Longest {
			pause = b.Longest
			break
		}
	}
	return spread(pause)
}

func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2))
}
