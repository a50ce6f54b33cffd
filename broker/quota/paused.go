package quota

import "context"

// An instance that is paused and holds no memory counts against MaxPaused in the place of
// MaxInstances. Who pauses or resumes one claims its place among the others before its provider
// is asked, and says afterwards how it counts: in between it counts among both, so whatever
// became of it nobody has had more than the limits allow.

// count says where the instance counts from now on. The caller holds mu.
func (i *Instance) count(running, paused bool) {
	if i.released {
		return
	}
	change := func(n *int64, before, after bool) {
		switch {
		case before && !after:
			*n--
		case !before && after:
			*n++
		}
	}
	change(&i.account.instances, i.running, running)
	change(&i.account.paused, i.paused, paused)
	i.running, i.paused = running, paused
	i.account.changedIn(MaxInstances, MaxPaused)
}

// Paused reports whether it counts among the paused ones alone.
func (i *Instance) Paused() bool {
	if i == nil {
		return false
	}
	i.keeper.mu.Lock()
	defer i.keeper.mu.Unlock()
	return i.paused && !i.running
}

// ClaimPause counts the instance in among the paused ones too, before its provider is asked to
// pause it. The error is a *Refusal: only the end of a pause makes room, which no request
// waits for. Settle has to follow.
func (i *Instance) ClaimPause() error {
	if i == nil {
		return nil
	}
	return i.claim(MaxPaused, func() *Refusal {
		if i.released || i.paused {
			return nil
		}
		if refusal := i.account.fits(MaxPaused, 1, 0); refusal != nil {
			return refusal
		}
		i.count(i.running, true)
		return nil
	})
}

// ClaimResume counts it in among the instances too, before its provider is asked to resume it.
// The error is a *Refusal, and it counts as before then. Settle has to follow.
func (i *Instance) ClaimResume() error {
	if i == nil {
		return nil
	}
	return i.claim(MaxInstances, func() *Refusal {
		if i.released || i.running {
			return nil
		}
		if refusal := i.account.fits(MaxInstances, 1, soon); refusal != nil {
			return refusal
		}
		i.count(true, i.paused)
		return nil
	})
}

// claimTimeout bounds how long it takes to ask the other brokers for a place.
const claimTimeout = patience + holdTimeout

// claim has a place taken.
func (i *Instance) claim(limit Limit, try func() *Refusal) error {
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	return i.keeper.claim(ctx, i.account, func() []need { return []need{{limit, 1}} }, try)
}

// Settle says whether the instance is paused and holds no memory, and lets go on who waited for
// the place that it has left.
func (i *Instance) Settle(paused bool) {
	if i == nil {
		return
	}
	k := i.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	left := i.running && paused
	i.count(!paused, paused)
	switch g := k.gates[i.provider]; {
	case !left || i.released:
	case g == nil:
		k.serve(i.account)
	default:
		g.room++ // it still has the instance, and room for one more
		k.serveAll()
	}
}
