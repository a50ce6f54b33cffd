//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// action is what happens at a point.
type action struct {
	killAt int64 // 0 for never
	delay  time.Duration
	hits   atomic.Int64
}

var actions = sync.OnceValue(func() map[Point]*action {
	all, err := parse(os.Getenv(Environment))
	if err != nil {
		panic(err) // a test that would prove nothing
	}
	return all
})

// Hit does what the environment says of a point.
func Hit(p Point) {
	a := actions()[p]
	if a == nil {
		return
	}
	if a.delay > 0 {
		time.Sleep(a.delay)
	}
	if a.hits.Add(1) == a.killAt {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it comes
	}
}

func parse(text string) (map[Point]*action, error) {
	all := map[Point]*action{}
	for item := range strings.SplitSeq(text, ",") {
		if item == "" {
			continue
		}
		name, what, _ := strings.Cut(item, "=")
		if !slices.Contains(All(), Point(name)) {
			return nil, fmt.Errorf("%s: there is no point %q", Environment, name)
		}
		a := &action{}
		verb, value, _ := strings.Cut(what, ":")
		var err error
		switch verb {
		case "kill":
			a.killAt, err = strconv.ParseInt(value, 10, 64)
		case "delay":
			a.delay, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("no action %q", verb)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", Environment, item, err)
		}
		all[Point(name)] = a
	}
	return all, nil
}

var haste = sync.OnceValue(func() int64 {
	n, err := strconv.ParseInt(os.Getenv(HasteEnvironment), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return n
})

// Hasten returns d divided by what the environment says: what happens every minute
// is to meet as much in a short test as it does in a long life.
func Hasten(d time.Duration) time.Duration { return d / time.Duration(haste()) }
