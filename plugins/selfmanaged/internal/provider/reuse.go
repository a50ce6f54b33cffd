package provider

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What executions without an instance of their own get.
const (
	oneShotFresh  = "fresh"
	oneShotTenant = "tenant"
)

// keepFor is how long a sandbox waits for its tenant to want it again.
const keepFor = 30 * time.Second

// resetTimeout bounds what a guest may take to empty its sandbox. One that needs longer
// is destroyed.
const resetTimeout = 5 * time.Second

// past is what a sandbox has seen. Whoever has the sandbox has it alone.
type past struct {
	uses  int64
	began time.Time // of the first use
}

// instanceID is the ID of the next instance in the sandbox: another one each time.
func (s *sandbox) instanceID() string {
	s.past.uses++
	if s.past.uses == 1 {
		s.past.began = time.Now()
		return s.ID
	}
	return newID()
}

// reuse says whose sandbox an execution without an instance of its own may be in.
type reuse struct {
	tenants bool          // one that its tenant had before
	uses    int64         // after how many a sandbox is destroyed
	age     time.Duration // of its first use, after which it is destroyed
}

// reuse is the part of the settings about it.
func (s settings) reuse() reuse {
	return reuse{tenants: s.OneShot == oneShotTenant, uses: s.OneShotUses, age: s.OneShotAge}
}

// wanted says whether the instance may be in a sandbox that its tenant had before, and
// leave it to another one.
func (r reuse) wanted(req sdk.CreateRequest) bool {
	return req.Reuse && r.tenants && req.Labels[sdk.LabelTenant] != ""
}

// allows says whether the sandbox of an instance that has ended may be its tenant's
// again: after one execution, which has ended by itself, and nothing else. A network that it got
// on the way is something else.
func (r reuse) allows(i *instance) bool {
	past := i.sandbox().past
	out, _ := i.network.current()
	return i.reuse && out == nil && !i.sandbox().starts() && i.clean.Load() && i.usedOnce() &&
		past.uses < r.uses && time.Since(past.began) < r.age
}

// endedByItself says whether the code has ended as code does, and was not killed.
func endedByItself(result sdk.ExecuteResult) bool {
	return (result.Status == sdk.StatusSucceeded || result.Status == sdk.StatusFailed) && result.ExitCode < 128
}
