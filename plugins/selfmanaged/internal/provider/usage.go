package provider

import (
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	// errPaused answers for what a frozen sandbox cannot do.
	errPaused = sdk.Errorf(sdk.CodeConflict, "the instance is paused")
	// errPausing answers while it is uncertain whether the sandbox is frozen.
	errPausing = sdk.Errorf(sdk.CodeConflict, "the instance is being paused or resumed")
	// errLeft answers for what is over because the instance has left its sandbox.
	errLeft = sdk.Errorf(sdk.CodeConflict, "the instance was paused meanwhile")
	// errInUse answers for a pause that would freeze somebody's answer too.
	errInUse = sdk.Errorf(sdk.CodeConflict, "the instance is in use: an execution or a transfer of files is in progress")
)

// usage says whether an instance is in use or paused. It is never both: a frozen
// sandbox must not count as one that does not answer. Nobody waits here: who finds
// it otherwise than wanted is told so.
type usage struct {
	mu        sync.Mutex
	uses      int
	calls     int64 // that were ever allowed
	paused    bool
	switching bool          // it is about to be paused or resumed
	running   chan struct{} // closed when it is not paused any more; nil if nobody waits
}

// use keeps the instance from being paused until release is called, once.
func (u *usage) use() (release func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.switching:
		return nil, errPausing
	case u.paused:
		return nil, errPaused
	}
	u.uses++
	u.calls++
	return u.release, nil
}

func (u *usage) release() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uses--
}

// beginSwitch claims the change to paused, or to running. needed is false if the
// instance is so already, however it is used. Whoever gets true owes an endSwitch.
func (u *usage) beginSwitch(paused bool) (needed bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.switching:
		return false, errPausing
	case u.paused == paused:
		return false, nil
	case u.uses > 0:
		return false, errInUse
	}
	u.switching = true
	return true, nil
}

// endSwitch says how the instance is now.
func (u *usage) endSwitch(paused bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.switching, u.paused = false, paused
	if !paused && u.running != nil {
		close(u.running)
		u.running = nil
	}
}

// awake returns what is closed when the instance is not paused.
func (u *usage) awake() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running == nil {
		u.running = make(chan struct{})
	}
	running := u.running
	if !u.paused && !u.switching {
		close(u.running)
		u.running = nil
	}
	return running
}

func (u *usage) isPaused() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.paused
}

// usedOnce says whether one call has ever been allowed, which is over.
func (u *usage) usedOnce() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls == 1 && u.uses == 0 && !u.paused && !u.switching
}
