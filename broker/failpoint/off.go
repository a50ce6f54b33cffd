//go:build !failpoints

package failpoint

import "time"

// Hit does nothing in this build.
func Hit(Point) {}

// Hasten returns d in this build.
func Hasten(d time.Duration) time.Duration { return d }
