package instance

// What instances are doing, in counts of them.
const (
	StateCreating = "creating"
	// StateUnclear is of those of which nobody knows whether the provider has them: a
	// creation ended without a clear answer, or an earlier process left a record that
	// the provider has not answered for yet.
	StateUnclear = "unclear"
	StateLive    = "live"
	StatePaused  = "paused"
	// StateEnding is of those that are being destroyed, what nobody knows included.
	StateEnding = "ending"
)

// States are those that instances are counted by.
func States() []string {
	return []string{StateCreating, StateUnclear, StateLive, StatePaused, StateEnding}
}

// CountByState says how many instances of all tenants there are, by what they are doing.
func (s *Service) CountByState() map[string]int {
	total := noneByState()
	for _, counts := range s.CountByProvider() {
		for state, n := range counts {
			total[state] += n
		}
	}
	return total
}

// CountByProvider is CountByState for each provider that there is, or that has some, by
// label.
func (s *Service) CountByProvider() map[string]map[string]int {
	counts := map[string]map[string]int{}
	for _, p := range s.catalog.Providers() {
		counts[p.Label()] = noneByState()
	}
	add := func(label, state string) {
		if counts[label] == nil {
			counts[label] = noneByState()
		}
		counts[label][state]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		add(e.provider.Label(), e.doing())
	}
	for _, r := range s.recovered {
		add(r.Provider, StateUnclear)
	}
	for key := range s.orphans {
		add(key.provider, StateEnding)
	}
	return counts
}

// doing is the state that the entry is counted by. The caller holds mu.
func (e *entry) doing() string {
	switch {
	case e.state == creating:
		return StateCreating
	case e.state == unsettled:
		return StateUnclear
	case e.state == ending:
		return StateEnding
	case e.paused:
		return StatePaused
	default:
		return StateLive
	}
}

func noneByState() map[string]int {
	counts := map[string]int{}
	for _, state := range States() {
		counts[state] = 0
	}
	return counts
}
