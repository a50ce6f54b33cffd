// Package pool keeps sandboxes ready ahead of need, and makes those who ask wait
// their turn when none is.
//
// A sandbox leaves the pool once and never returns. What a sandbox is, how one is
// made and how one is asked whether it is well, the pool does not know.
//
// Start with pool.go, the way of a request. queue.go says whose turn it is,
// demand.go how much was asked for, refill.go what is made when, upkeep.go what
// becomes of sandboxes that wait for long, stats.go what can be known of all this.
package pool
