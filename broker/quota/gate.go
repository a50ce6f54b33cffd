package quota

import "time"

const (
	// gateRetry is when a provider that is full is asked again, if it does not
	// say when itself and nothing ends on it before.
	gateRetry = time.Second
	// maxGateRetry is the longest that a provider can say.
	maxGateRetry = 30 * time.Second
)

// gate stands before a provider that has said that it is full. There is one only
// until nobody waits for it any more.
type gate struct {
	// room is how many instances it had then. One that ends makes room for one;
	// and now and then one more is tried.
	room  int64
	delay time.Duration
	timer *time.Timer
}

// closeGate holds back who wants an instance of a provider. The caller holds mu.
func (k *Keeper) closeGate(provider string, retry time.Duration) {
	if k.closed {
		return
	}
	if retry <= 0 {
		retry = gateRetry
	}
	g := k.gates[provider]
	if g == nil {
		g = &gate{}
		g.timer = time.AfterFunc(min(retry, maxGateRetry), func() { k.tryGate(provider, g) })
		k.gates[provider] = g
	}
	g.room, g.delay = k.providers[provider], min(retry, maxGateRetry)
	g.timer.Reset(g.delay)
}

// openGate lets everybody pass. The caller holds mu.
func (k *Keeper) openGate(provider string) {
	if g := k.gates[provider]; g != nil {
		g.timer.Stop()
		delete(k.gates, provider)
	}
}

// tryGate lets one more pass.
func (k *Keeper) tryGate(provider string, g *gate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gates[provider] != g {
		return
	}
	if !k.awaited(provider, nil) {
		k.openGate(provider)
		return
	}
	g.room = max(g.room, k.providers[provider]) + 1
	g.timer.Reset(g.delay)
	k.serveAll()
}

// closedTo reports whether a waiter is held back by the gate of its provider. Who
// will not wait may try it, unless others wait. The caller holds mu.
func (k *Keeper) closedTo(w *waiter) bool {
	provider := w.demand.Provider
	g := k.gates[provider]
	return g != nil && k.providers[provider] >= g.room && (w.demand.Wait > 0 || k.awaited(provider, w))
}

// awaited reports whether somebody else than w waits for an instance of a provider.
// The caller holds mu.
func (k *Keeper) awaited(provider string, w *waiter) bool {
	for _, a := range k.turns {
		for _, other := range a.line {
			if other != w && other.demand.Instance && other.demand.Provider == provider {
				return true
			}
		}
	}
	return false
}
